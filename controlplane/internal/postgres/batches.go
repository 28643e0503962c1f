package postgres

// inBatches runs a statement until it removes less than a whole batch.
func DeleteInBatches(remove func() (int64, error)) (removed int64, err error) {
	for {
		n, err := remove()
		removed += n
		if err != nil || n < RemoveBatch {
			return removed, err
		}
	}
}

// RemoveBatch bounds the rows of one statement.
const RemoveBatch = 1000
