//go:build !linux

package supervise

import "syscall"

// dieWithParent does nothing, because only Linux signals a child when its parent dies. The
// next start of the stack ends remaining processes.
func dieWithParent(*syscall.SysProcAttr) {}
