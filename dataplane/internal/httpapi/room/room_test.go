package room_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/httpapi/buffer"
	"modelgateway/dataplane/internal/httpapi/room"
)

const mib = 1 << 20

// owner counts how often it has yielded.
type owner struct{ yielded int }

func (o *owner) Yield() { o.yielded++ }

func newRooms(t *testing.T) *room.Rooms {
	t.Helper()
	return &room.Rooms{Memory: bytebudget.New(80*mib, 0.25), Disk: bytebudget.New(160*mib, 0.25), Dir: t.TempDir()}
}

func TestAnswerIsHeldInAFileWhenNoMemoryBecomesFree(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"declared length": 8 * mib, "unknown length": -1} {
		synctest.Test(t, func(t *testing.T) {
			rooms := newRooms(t)
			body := rooms.Memory.Begin("acc")
			if err := body.Grow(19 * mib); err != nil {
				t.Fatal(err)
			}
			var o owner
			answer := rooms.Begin("acc", &o)
			text := strings.Repeat("words of an answer ", 8*mib/19+1)[:8*mib]
			began := time.Now()
			b, err := buffer.ReadAll(strings.NewReader(text), length, 256*mib, &answer)
			if err != nil || string(*b) != text {
				t.Fatalf("%s: got %d bytes, %v", name, len(*b), err)
			}
			if waited := time.Since(began); waited != 15*time.Second || o.yielded == 0 {
				t.Errorf("%s: it waited %s and its request yielded %d times", name, waited, o.yielded)
			}
			if used := rooms.Memory.Used(); used != 19*mib || rooms.Disk.Used() < 8*mib {
				t.Errorf("%s: %d bytes in memory, %d on disk", name, used, rooms.Disk.Used())
			}

			rewritten, err := answer.Rewritten(len(*b), 0)
			if err != nil {
				t.Fatal(err)
			}
			*rewritten = append(*rewritten, *b...)
			*rewritten = append(*rewritten, strings.Repeat("more", 4*mib)...) // it moves to the heap
			answer.Put(rewritten)
			answer.Put(b)
			answer.Release()
			body.Release()
			if rooms.Memory.Used() != 0 || rooms.Disk.Used() != 0 {
				t.Errorf("%s: %d bytes in memory and %d on disk are left", name, rooms.Memory.Used(), rooms.Disk.Used())
			}
			if left, err := os.ReadDir(rooms.Dir); err != nil || len(left) > 0 {
				t.Errorf("%s: left in the folder: %v, %v", name, left, err)
			}
		})
	}
}

func TestFilesOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rooms := newRooms(t)
		full := rooms.Memory.Begin("somebody")
		if err := full.Grow(70 * mib); err != nil {
			t.Fatal(err)
		}
		hold := func(account string, want error) {
			t.Helper()
			answer := rooms.Begin(account, &owner{})
			if err := answer.Grow(30 * mib); !errors.Is(err, want) {
				t.Errorf("%s: got %v; want %v", account, err, want)
			}
			t.Cleanup(answer.Release)
		}
		hold("a", nil)
		hold("a", bytebudget.ErrShare)
		hold("b", nil)
		hold("c", nil)

		nowhere := *rooms
		nowhere.Dir += "/absent"
		answer := nowhere.Begin("d", &owner{})
		if err := answer.Grow(30 * mib); !errors.Is(err, bytebudget.ErrFull) {
			t.Errorf("without a folder: got %v", err)
		}
		answer.Release()
	})
}

func TestEventWaitsForMemoryAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rooms := newRooms(t)
		body := rooms.Memory.Begin("acc")
		if err := body.Grow(19 * mib); err != nil {
			t.Fatal(err)
		}
		var o owner
		event := rooms.Event("acc", &o)
		if err := event.Grow(2 * mib); !errors.Is(err, bytebudget.ErrShare) || o.yielded != 1 || rooms.Disk.Used() != 0 {
			t.Errorf("got %v; yielded %d times, %d bytes on disk", err, o.yielded, rooms.Disk.Used())
		}
		body.Release()
		if err := event.Grow(2 * mib); err != nil {
			t.Errorf("with room: got %v", err)
		}
		event.Release()
	})
}
