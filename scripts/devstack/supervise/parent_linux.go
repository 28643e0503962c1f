package supervise

import "syscall"

// dieWithParent makes the kernel kill the child when this process dies. A graceful stop
// would fail, because NATS and the database end at the same time.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
