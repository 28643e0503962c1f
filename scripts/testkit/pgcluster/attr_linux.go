package pgcluster

import "syscall"

// stopWithParent makes the kernel ask the server for a fast shutdown when this
// process ends without having stopped it.
func stopWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }
