SELECT forgotten_until FROM chores WHERE namespace = $1 AND key = $2
