//go:build !linux

package pgcluster

import "syscall"

// stopWithParent does nothing, because only Linux signals a child when its parent ends.
// The next start in the same directory ends a remaining server.
func stopWithParent(*syscall.SysProcAttr) {}

// freeBytes returns 0: only Linux has the file system in memory that it is asked for.
func freeBytes(string) uint64 { return 0 }
