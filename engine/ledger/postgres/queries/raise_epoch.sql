UPDATE ledger SET epoch = epoch + 1
