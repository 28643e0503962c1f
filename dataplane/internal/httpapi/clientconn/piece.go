package clientconn

import (
	"iter"
	"slices"
)

// PieceSize is how much of an answer is written with one deadline, in bytes.
const PieceSize = 64 << 10

// Pieces returns the pieces of an answer in parts.
func Pieces(parts [][]byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, part := range parts {
			for piece := range slices.Chunk(part, PieceSize) {
				if !yield(piece) {
					return
				}
			}
		}
	}
}
