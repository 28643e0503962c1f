package videojob

import (
	"slices"
	"sync"
)

const (
	// concurrentPolls bounds the jobs that a proxy polls at once, pollsPerAccount those of one account, so that polls that
	// hang do not stop the others.
	concurrentPolls = 16
	pollsPerAccount = 12
	// maxWaiting bounds the received tasks that wait for their turn, waitingPerAccount those of one account. They start
	// before the queue delivers them again, unless every poll takes as long as it may.
	maxWaiting        = 16
	waitingPerAccount = 8
)

// turns orders the polls of a proxy: accounts take turns, and an account's tasks are polled in the order of their
// arrival. It is safe for concurrent use.
type turns struct {
	mu sync.Mutex
	// accounts has those with a task that waits or is being polled, order those with a task that waits, the next one
	// first.
	accounts map[string]*share
	order    []*share
	// waiting and polled are the sums of all accounts.
	waiting, polled int
}

// share has the tasks of one account.
type share struct {
	waiting []*Task
	// polled is how many are being polled.
	polled int
}

// add makes a task wait for its turn. It returns the task that has to go back to the queue, if any: the new one if its
// account has enough waiting ones, otherwise the newest of the account with the most.
func (t *turns) add(task *Task) (excess *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.accounts[task.Poll.AccountID]
	if s == nil {
		s = new(share)
	}
	if len(s.waiting) >= waitingPerAccount {
		return task
	}

	if t.waiting >= maxWaiting {
		longest := slices.MaxFunc(t.order, func(a, b *share) int { return len(a.waiting) - len(b.waiting) })
		if len(longest.waiting) <= len(s.waiting)+1 {
			return task
		}
		last := len(longest.waiting) - 1
		excess, longest.waiting = longest.waiting[last], longest.waiting[:last]
		t.waiting--
	}

	if len(s.waiting) == 0 {
		t.order = append(t.order, s)
	}

	s.waiting = append(s.waiting, task)
	t.accounts[task.Poll.AccountID] = s
	t.waiting++
	return excess
}

// next returns the task to poll now, nil if there is none or enough are being polled. The caller calls done when it has
// been polled.
func (t *turns) next() *Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.polled >= concurrentPolls {
		return nil
	}

	i := slices.IndexFunc(t.order, func(s *share) bool { return s.polled < pollsPerAccount })
	if i < 0 {
		return nil
	}

	s := t.order[i]
	t.order = slices.Delete(t.order, i, i+1)
	task := s.waiting[0]
	s.waiting = slices.Delete(s.waiting, 0, 1)
	if len(s.waiting) > 0 {
		t.order = append(t.order, s)
	}

	s.polled++
	t.polled++
	t.waiting--
	return task
}

// done ends the turn of a task.
func (t *turns) done(task *Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.accounts[task.Poll.AccountID]
	s.polled--
	t.polled--
	if s.polled == 0 && len(s.waiting) == 0 {
		delete(t.accounts, task.Poll.AccountID)
	}
}

// drain returns all tasks that wait, and forgets them.
func (t *turns) drain() (tasks []*Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.order {
		tasks = append(tasks, s.waiting...)
	}
	t.accounts, t.order, t.waiting = map[string]*share{}, nil, 0
	return tasks
}
