package reporter

import (
	"encoding/json"
	"sync"
	"time"

	"modelgateway/shared/pulse"
)

// Refusals counts refused requests by account, key and code until they are reported. It is safe for concurrent use. A nil
// one counts nothing.
type Refusals struct {
	mu sync.Mutex
	// minute is when the current minute began, pairs the combinations that were counted in it.
	minute time.Time
	pairs  map[pair]bool
	// waiting are the counts that are not reported yet, order their keys in the order of their first requests.
	waiting map[pair]*refusal
	order   []pair
}

type pair struct {
	account, key, code string
	status             int
	other              bool
}

type refusal struct {
	pulse.Refusal
	first, last time.Time
}

// NewRefusals returns Refusals without any counts.
func NewRefusals() *Refusals { return &Refusals{pairs: map[pair]bool{}, waiting: map[pair]*refusal{}} }

// Record counts a request that was refused now. The counts and the ages of q are not read.
func (r *Refusals) Record(now time.Time, q *pulse.Refusal) {
	if r == nil {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if now.Sub(r.minute) >= time.Minute {
		r.minute = now
		clear(r.pairs)
	}

	p := pair{q.Account, q.Key, q.Code, q.Status, false}
	if !r.pairs[p] {
		if len(r.pairs) >= pulse.MaxRefusals {
			p = pair{"", "", q.Code, q.Status, true}
		} else {
			r.pairs[p] = true
		}
	}

	counted := r.waiting[p]
	if counted == nil {
		counted = &refusal{first: now}
		r.waiting[p] = counted
		r.order = append(r.order, p)
	}

	counted.Refusal = pulse.Refusal{
		Account:   p.account,
		Key:       p.key,
		Code:      p.code,
		Status:    p.status,
		Other:     p.other,
		N:         counted.N + 1,
		RequestID: q.RequestID,
		Model:     q.Model,
		Short:     q.Short,
		Reason:    q.Reason,
	}
	counted.last = now
}

// take removes the oldest counts that fit into a number of bytes, and returns them with their ages.
func (r *Refusals) take(now time.Time, room int) []pulse.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken []pulse.Refusal
	for len(r.order) > 0 {
		counted := r.waiting[r.order[0]]
		row := counted.Refusal
		row.FirstMS, row.LastMS = now.Sub(counted.first).Milliseconds(), now.Sub(counted.last).Milliseconds()
		if room -= size(row); room < 0 {
			break
		}
		taken = append(taken, row)
		delete(r.waiting, r.order[0])
		r.order = r.order[1:]
	}

	if len(r.order) == 0 {
		r.order = nil
	}

	return taken
}

// restore puts counts back that could not be sent.
func (r *Refusals) restore(now time.Time, rows []pulse.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var order []pair
	for _, row := range rows {
		p := pair{row.Account, row.Key, row.Code, row.Status, row.Other}
		first, last := now.Add(-time.Duration(row.FirstMS)*time.Millisecond), now.Add(-time.Duration(row.LastMS)*time.Millisecond)
		if newer := r.waiting[p]; newer != nil {
			newer.N, newer.first = newer.N+row.N, first
			continue
		}
		r.waiting[p] = &refusal{row, first, last}
		order = append(order, p)
	}
	r.order = append(order, r.order...)
}

// size returns the length of a row in a report, with the comma before it.
func size(row any) int {
	data, err := json.Marshal(row)
	if err != nil {
		panic(err) // a row has texts and numbers only
	}
	return len(data) + 1
}
