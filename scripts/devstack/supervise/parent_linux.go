package supervise

import "syscall"

// dieWithParent makes the kernel kill the child when this process dies. It gets
// no time: the bus and the database that it would need die too.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
