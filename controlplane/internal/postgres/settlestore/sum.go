package settlestore

import (
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/ident"
)

// dayKey identifies a row of the daily roll-up.
type dayKey struct {
	account, key ident.UUID
	// day is in Unix days.
	day   int64
	model string
}

// errSums is returned if the sum of the counts of a batch is out of range.
var errSums = errors.New("counts are out of range")

// daySums are the sums of a batch of records by day.
type daySums struct {
	rows  map[dayKey]int
	total sqlcgen.UpdateRollupsParams
	over  bool
}

const msPerDay = 24 * 60 * 60 * 1000

// add adds a record.
func (s *daySums) add(item *settle.Item) {
	e, u := item.Event, &item.Event.Usage
	key := dayKey{item.AccountID, item.KeyID, item.RequestID.Time().UnixMilli() / msPerDay, e.Model}
	i, ok := s.rows[key]
	if !ok {
		i = s.begin(key)
	}
	t := &s.total
	s.sum(t.Requests, i, 1)
	if e.Estimated {
		s.sum(t.Estimated, i, 1)
	}
	s.sum(t.Input, i, u.Input)
	s.sum(t.CachedInput, i, u.CachedInput)
	for _, n := range [...]int64{u.CacheWrite5m, u.CacheWrite1h, u.CacheWrite30m, u.CacheWrite12h, u.CacheWriteOther} {
		s.sum(t.CacheWrite, i, n)
	}
	s.sum(t.Output, i, u.Output)
	s.sum(t.Reasoning, i, u.Reasoning)
	s.sum(t.AudioIn, i, u.AudioIn)
	s.sum(t.AudioOut, i, u.AudioOut)
	s.sum(t.ImageIn, i, u.ImageIn)
	s.sum(t.ImageOut, i, u.ImageOut)
	s.sum(t.Images, i, u.Images)
	s.sum(t.Seconds, i, u.Seconds)
	s.sum(t.ServerToolRequests, i, u.ServerToolRequests)
	s.sum(t.Costs, i, int64(e.Cost))
}

// begin adds a row of zeros.
func (s *daySums) begin(key dayKey) int {
	if s.rows == nil {
		s.rows = map[dayKey]int{}
	}
	i := len(s.rows)
	s.rows[key] = i
	t := &s.total
	t.AccountIds, t.KeyIds, t.Models = append(t.AccountIds, key.account), append(t.KeyIds, key.key), append(t.Models, key.model)
	t.UsedOn = append(t.UsedOn, pgtype.Date{Time: time.UnixMilli(key.day * msPerDay).UTC(), Valid: true})
	for _, column := range []*[]int64{
		&t.Requests, &t.Estimated, &t.Input, &t.CachedInput, &t.CacheWrite, &t.Output, &t.Reasoning, &t.AudioIn, &t.AudioOut,
		&t.ImageIn, &t.ImageOut, &t.Images, &t.Seconds, &t.ServerToolRequests, &t.Costs,
	} {
		*column = append(*column, 0)
	}
	return i
}

func (s *daySums) sum(column []int64, i int, n int64) {
	if (n > 0 && column[i] > math.MaxInt64-n) || (n < 0 && column[i] < math.MinInt64-n) {
		s.over = true
		return
	}
	column[i] += n
}
