package postgres

// BatchRows is the maximum number of rows that a statement deletes. It bounds the
// locks that the statement holds.
const BatchRows = 1000

// DeleteInBatches runs a statement until it deletes fewer than BatchRows rows, and
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
