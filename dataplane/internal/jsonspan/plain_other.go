//go:build !amd64

package jsonspan

const hasVectors = false

func plainBlocks([]byte) int { return 0 }
