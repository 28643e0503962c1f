package upstream

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// acknowledged returns the number of bytes that the other side of a connection has acknowledged since its beginning.
func acknowledged(plain net.Conn) (n uint64, known bool) {
	s, ok := plain.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, false
	}
	controlErr := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if known = err == nil && info.Bytes_acked > 0; known {
			n = info.Bytes_acked - 1 // without the SYN
		}
	})
	return n, known && controlErr == nil
}
