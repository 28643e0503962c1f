package pgcluster

import "syscall"

// stopWithParent makes the kernel ask the server for a fast shutdown when this
// process ends without having stopped it.
func stopWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// freeBytes returns what may be written to the file system of a directory; 0 if that is not known.
func freeBytes(dir string) uint64 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}
