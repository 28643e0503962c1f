package jsonspan

import "golang.org/x/sys/cpu"

var hasVectors = cpu.X86.HasAVX2

// plainBlocks returns how many bytes b begins with that do not end a run of plain string text, in whole blocks of
// plainBlock. It may be called only if hasVectors is true.
//
//go:noescape
func plainBlocks(b []byte) int
