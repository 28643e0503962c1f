package clientconn

import "testing"

// A read outside of a turn is as cheap as that of the connection below: every request makes three.
func TestCostsOfAReadIncludeNoAllocation(t *testing.T) {
	c, client := accepted(t, Config{})
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
