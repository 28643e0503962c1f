//go:build !linux

package pgcluster

import "syscall"

// stopWithParent does nothing, because only Linux signals a child when its parent ends.
// The next start in the same directory ends a remaining server.
func stopWithParent(*syscall.SysProcAttr) {}
