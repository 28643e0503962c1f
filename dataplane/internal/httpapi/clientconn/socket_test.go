package clientconn

import (
	"net"
	"testing"
)

// A read outside of a turn is as cheap as that of the connection below: every request makes three.
func TestCostsOfAReadIncludeNoAllocation(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	c, err := Listen(Sockets(l), Config{}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	sent, got := []byte("prompt"), make([]byte, 16)
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := client.Write(sent); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(got); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 0 {
		t.Errorf("a read makes %v allocations", allocations)
	}
}
