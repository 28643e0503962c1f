package credential

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulated is a source whose answers the test decides.
type simulated struct {
	source
	tasks sync.WaitGroup
	// asked counts the renewals, running those on their way, and most the most at the same time.
	asked, running, most atomic.Int64
	// takes is how long a renewal takes, lives how long a token lives.
	takes, lives time.Duration
	// failing reports whether renewals fail.
	failing atomic.Bool
	// states has what was observed: the error and whether a valid token was left.
	mu     sync.Mutex
	states []string
}

var errSource = errors.New("the source is down")

func newSimulated(takes, lives time.Duration) *simulated {
	s := &simulated{takes: takes, lives: lives}
	s.run = func(renew func(context.Context)) bool {
		s.tasks.Go(func() { renew(context.Background()) })
		return true
	}
	s.observe = func(err error, valid bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.states = append(s.states, fmt.Sprint(err, " ", valid))
	}
	s.fetchFunc = func(ctx context.Context) (Token, error) {
		n := s.asked.Add(1)
		s.most.Store(max(s.most.Load(), s.running.Add(1)))
		defer s.running.Add(-1)
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return Token{}, ctx.Err()
		}
		if s.failing.Load() {
			return Token{}, errSource
		}
		t := Token{Text: fmt.Sprint("token ", n)}
		if s.lives > 0 {
			t.Expires = time.Now().Add(s.lives)
		}
		return t, nil
	}
	return s
}

// A million calls in an hour, with tokens of ten minutes, from a source that is slow and fails for two minutes of each ten:
// no call fails, and none but the first ones waits.
func TestNoCallFailsOrWaitsWhileTokensAreRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const callers, each = 100, 10_000
		s := newSimulated(time.Second, 10*time.Minute)
		begun := time.Now()
		outages := time.NewTicker(time.Minute)
		done := make(chan struct{})
		var outage sync.WaitGroup
		outage.Go(func() {
			for {
				select {
				case <-outages.C:
					minute := int(time.Since(begun)/time.Minute) % 10
					s.failing.Store(minute == 7 || minute == 8)
				case <-done:
					return
				}
			}
		})

		var failed, waited, expired atomic.Int64
		var calls sync.WaitGroup
		for i := range callers {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 3600 * time.Microsecond)
				for range each {
					before := time.Now()
					token, err := s.token(t.Context())
					switch {
					case err != nil:
						failed.Add(1)
					case !time.Now().Before(token.Expires):
						expired.Add(1)
					}
					if time.Since(before) > 0 && time.Since(begun) > 2*time.Second {
						waited.Add(1)
					}
					time.Sleep(time.Hour / each)
				}
			})
		}
		calls.Wait()
		outages.Stop()
		close(done)
		outage.Wait()
		s.tasks.Wait()

		if failed.Load() != 0 || expired.Load() != 0 || waited.Load() != 0 {
			t.Errorf("of %d calls %d failed, %d got a token that had ended, %d waited", callers*each, failed.Load(), expired.Load(), waited.Load())
		}
		t.Logf("%d calls in %s: %d renewals, %d failed, %d at a time", callers*each, time.Since(begun), s.asked.Load(), s.failed(), s.most.Load())
		if s.most.Load() != 1 || s.failed() == 0 {
			t.Errorf("%d renewals at the same time, %d failed", s.most.Load(), s.failed())
		}
	})
}

// failed counts the renewals that failed.
func (s *simulated) failed() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.states {
		if state != "<nil> true" {
			n++
		}
	}
	return n
}

func TestOneRenewalServesAllCallsThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(time.Second, time.Hour)
		var calls sync.WaitGroup
		for range 1000 {
			calls.Go(func() {
				if token, err := s.token(t.Context()); err != nil || token.Text != "token 1" {
					t.Errorf("got %v, %v", token, err)
				}
			})
		}
		calls.Wait()
		if n := s.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// While the source fails, the old token is used to its end. Then calls fail at once, and the source is not asked more often
// than the pause allows.
func TestTokenIsUsedToItsEndWhileTheSourceFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(time.Second, 10*time.Minute)
		if _, err := s.token(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.failing.Store(true)
		begun := time.Now()
		end := begun.Add(10*time.Minute - margin)
		for time.Now().Before(end) {
			if _, err := s.token(t.Context()); err != nil {
				t.Fatalf("%s after the token had come: %v", time.Since(begun), err)
			}
			time.Sleep(time.Second)
		}
		asked := s.asked.Load()
		for range 600 {
			before := time.Now()
			if _, err := s.token(t.Context()); !errors.Is(err, errSource) || time.Since(before) > s.takes {
				t.Fatalf("got %v after %s; want the error of the source", err, time.Since(before))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if more := s.asked.Load() - asked; more > 3 {
			t.Errorf("asked %d times in a minute without a token", more)
		}

		s.failing.Store(false)
		time.Sleep(maxRetry)
		if _, err := s.token(t.Context()); err != nil {
			t.Errorf("the source works again: %v", err)
		}
		s.tasks.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		valid, without := 0, 0
		for _, state := range s.states[1 : len(s.states)-1] {
			switch state {
			case errSource.Error() + " true":
				valid++
			case errSource.Error() + " false":
				without++
			}
		}
		if valid == 0 || without == 0 || valid+without != len(s.states)-2 {
			t.Errorf("observed %q", s.states)
		}
	})
}

// A call that waits ends with its own context; the renewal goes on for the others.
func TestWaitEndsWithTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(time.Second, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.token(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if _, err := s.token(t.Context()); err != nil || s.asked.Load() != 1 {
			t.Errorf("got %v after asking %d times", err, s.asked.Load())
		}
	})
}

func TestSilentSourceIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(time.Hour, time.Hour)
		begun := time.Now()
		if _, err := s.token(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != fetchTimeout {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
		s.tasks.Wait()
	})
}

func TestTokenThatHasEndedIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(time.Second, margin)
		if _, err := s.token(t.Context()); !errors.Is(err, errEnded) {
			t.Errorf("got %v", err)
		}
		s.tasks.Wait()
	})
}

// A source with a cache of its own returns the same token for a while.
func TestSourceThatReturnsTheSameTokenIsAskedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(0, 0)
		expires := time.Now().Add(time.Hour)
		s.fetchFunc = func(context.Context) (Token, error) {
			s.asked.Add(1)
			if time.Until(expires) < 5*time.Minute {
				expires = time.Now().Add(time.Hour)
			}
			return Token{Text: expires.String(), Expires: expires}, nil
		}
		begun := time.Now()
		for time.Since(begun) < 10*time.Hour {
			if token, err := s.token(t.Context()); err != nil || !time.Now().Before(token.Expires) {
				t.Fatalf("got %v, %v", token, err)
			}
			time.Sleep(time.Second)
		}
		s.tasks.Wait()
		if n := s.asked.Load(); n > 10*25 {
			t.Errorf("asked %d times in ten hours", n)
		}
	})
}

func TestTokenWithoutAnEndIsRenewedAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(time.Second, 0)
		expect := func(want string) {
			t.Helper()
			if token, err := s.token(t.Context()); err != nil || token.Text != want {
				t.Errorf("got %v, %v; want %s", token, err, want)
			}
			s.tasks.Wait()
		}
		expect("token 1")
		time.Sleep(lifeUnknown - time.Second)
		expect("token 1")
		if n := s.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(time.Second)
		expect("token 1") // begins the renewal
		expect("token 2")
		s.failing.Store(true)
		time.Sleep(time.Hour)
		if _, err := s.token(t.Context()); err != nil {
			t.Errorf("%v; the token may still be valid", err)
		}
		s.tasks.Wait()
	})
}

// A provider may reject a token before its end. It is not used again, but a provider that rejects every token does not make
// the source be asked for each call.
func TestRejectedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(time.Second, time.Hour)
		first, err := s.token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if !s.rejected(first) {
				t.Error("a call with another token is worth a try, for all calls that had the first one")
			}
		}
		second, err := s.token(t.Context())
		if err != nil || second.Text == first.Text {
			t.Errorf("got %v, %v", second, err)
		}
		if s.rejected(second) || s.asked.Load() != 2 {
			t.Error("the provider rejects every token")
		}
		time.Sleep(minRejected)
		if !s.rejected(second) {
			t.Error("half a minute later it may be worth a try again")
		}
		s.tasks.Wait()
	})
}

func TestKeysAreTheSameByTheirIdAndSession(t *testing.T) {
	t.Parallel()
	keys := func(id, session string) *Token {
		return &Token{Keys: &aws.Credentials{AccessKeyID: id, SessionToken: session}}
	}
	if !keys("a", "s").same(keys("a", "s")) || keys("a", "s").same(keys("a", "t")) || keys("a", "s").same(keys("b", "s")) || keys("a", "s").same(&Token{}) {
		t.Error("compared wrongly")
	}
}
