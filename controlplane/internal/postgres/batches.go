package postgres

// BatchRows is the number of rows that a statement deletes at most, so that it
// holds few locks.
const BatchRows = 1000

// DeleteInBatches runs a statement until it deletes less than BatchRows, and
// returns the number of deleted rows.
func DeleteInBatches(deleteBatch func() (int64, error)) (deleted int64, err error) {
	for {
		n, err := deleteBatch()
		deleted += n
		if err != nil || n < BatchRows {
			return deleted, err
		}
	}
}
