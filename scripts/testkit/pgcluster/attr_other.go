//go:build !linux

package pgcluster

import "syscall"

// stopWithParent does nothing: only Linux tells a child of its parent's end.
// A server left over is ended by the next start in its directory.
func stopWithParent(*syscall.SysProcAttr) {}
