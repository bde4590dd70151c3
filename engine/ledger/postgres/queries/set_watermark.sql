UPDATE duties SET watermark = greatest(watermark, $4)
WHERE namespace = $1 AND duty = $2 AND holder = $3
