package clientconn

import (
	"context"
	"errors"
	"testing"

	"modelgateway/shared/platform/testkit/await"
)

// takenOver returns a Watch of a connection.
func takenOver(t *testing.T, c *Conn) *Watch {
	t.Helper()
	w := &Watch{Context: context.Background()}
	w.TakeOver(c)
	t.Cleanup(w.End)
	return w
}

func TestWatchEndsWithTheConnectionOfItsClient(t *testing.T) {
	c, client := accepted(t, Config{})
	w := takenOver(t, c)
	child, cancel := context.WithCancel(w)
	defer cancel()
	if w.Gone() || child.Err() != nil {
		t.Error("the client counts as gone while it is there")
	}
	_ = client.Close()
	<-child.Done()
	if !w.Gone() || !errors.Is(w.Err(), context.Canceled) {
		t.Errorf("got %v", w.Err())
	}
}

func TestClientIsSeenToBeGoneThoughNobodyWaits(t *testing.T) {
	c, client := accepted(t, Config{})
	w := takenOver(t, c)
	_ = client.Close()
	await.Until(t, "the end of the connection to arrive", w.Gone)
	if w.Err() != nil {
		t.Errorf("got %v without a call of Done", w.Err())
	}
}

// The read of net/http is one of one byte, which it would have to interrupt.
func TestWatchReplacesThatOfTheServer(t *testing.T) {
	c, _ := accepted(t, Config{})
	takenOver(t, c)
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("got %d bytes and %v", n, err)
	}
}

func TestNextRequestIsReadAfterAWatch(t *testing.T) {
	for _, early := range []bool{false, true} {
		c, client := accepted(t, Config{})
		w := takenOver(t, c)
		send := func() {
			if _, err := client.Write([]byte("next")); err != nil {
				t.Fatal(err)
			}
		}
		if early {
			send()
		}
		done := w.Done()
		w.End()
		<-done
		if w.Err() != nil || w.Gone() {
			t.Errorf("after its end: %v", w.Err())
		}
		if !early {
			send()
		}
		got := make([]byte, 16)
		if n, err := c.Read(got); string(got[:n]) != "next" || err != nil {
			t.Errorf("got %q and %v", got[:n], err)
		}
	}
}
