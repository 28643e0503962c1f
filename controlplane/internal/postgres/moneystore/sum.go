package moneystore

import (
	"errors"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/event"
	"modelgateway/shared/ident"
	"modelgateway/shared/price"
)

// dayKey identifies a row of the daily roll-up.
type dayKey struct {
	account, key, project ident.UUID
	// day is in Unix days.
	day   int64
	model string
	// tier is empty for the default service tier.
	tier string
}

// dayRow is a row of the daily roll-up with its counts, in the order of columnsOf.
type dayRow struct {
	dayKey
	counts [16]int64
}

// errSums is returned if the sum of the counts of a batch is out of range.
var errSums = errors.New("counts are out of range")

// daySums are the sums of a batch of records by day. The counts of a row are stored together, because the rows of a large
// batch do not fit into the processor's cache.
type daySums struct {
	rows  []dayRow
	index map[dayKey]int
	over  bool
}

const msPerDay = 24 * 60 * 60 * 1000

// add adds a record.
func (s *daySums) add(item *settle.Item) {
	e, u := item.Event, &item.Event.Usage
	tier := u.ServiceTier
	if tier == price.DefaultTier {
		tier = ""
	}
	row := s.row(dayKey{
		account: item.AccountID,
		key:     item.KeyID,
		project: item.ProjectID,
		day:     item.RequestID.Time().UnixMilli() / msPerDay,
		model:   e.Model,
		tier:    tier,
	})
	estimated := int64(0)
	if e.Estimated {
		estimated = 1
	}

	gone := int64(0)
	if e.Status == event.ClientGone {
		gone = 1
	}

	cacheWrite := int64(0)
	for i, count := range u.Counts() {
		if price.Kinds[i].IsCacheWrite {
			s.sum(&cacheWrite, *count)
		}
	}

	for i, n := range [len(row.counts)]int64{
		1, estimated, gone, u.Input, u.CachedInput, cacheWrite, u.Output, u.Reasoning, u.AudioIn, u.AudioOut,
		u.ImageIn, u.ImageOut, u.Images, u.Seconds, u.ServerToolRequests, int64(e.Cost),
	} {
		s.sum(&row.counts[i], n)
	}
}

// row returns the row of a key. It is valid until the next call.
func (s *daySums) row(key dayKey) *dayRow {
	i, ok := s.index[key]
	if !ok {
		if s.index == nil {
			s.index = map[dayKey]int{}
		}
		i = len(s.rows)
		s.index[key], s.rows = i, append(s.rows, dayRow{dayKey: key})
	}
	return &s.rows[i]
}

func (s *daySums) sum(to *int64, n int64) {
	if (n > 0 && *to > math.MaxInt64-n) || (n < 0 && *to < math.MinInt64-n) {
		s.over = true
		return
	}
	*to += n
}

// columnsOf returns the columns of the counts.
func columnsOf(p *sqlcgen.UpdateRollupsParams) [len(dayRow{}.counts)]*[]int64 {
	return [...]*[]int64{
		&p.Requests, &p.Estimated, &p.ClientGone, &p.Input, &p.CachedInput, &p.CacheWrite, &p.Output, &p.Reasoning, &p.AudioIn, &p.AudioOut,
		&p.ImageIn, &p.ImageOut, &p.Images, &p.Seconds, &p.ServerToolRequests, &p.Costs,
	}
}

// params returns the sums by column.
func (s *daySums) params() (p sqlcgen.UpdateRollupsParams) {
	columns := columnsOf(&p)
	for i := range s.rows {
		r := &s.rows[i]
		p.AccountIds, p.KeyIds, p.Models = append(p.AccountIds, r.account), append(p.KeyIds, r.key), append(p.Models, r.model)
		p.ProjectIds, p.ServiceTiers = append(p.ProjectIds, r.project), append(p.ServiceTiers, r.tier)
		p.UsedOn = append(p.UsedOn, pgtype.Date{Time: time.UnixMilli(r.day * msPerDay).UTC(), Valid: true})
		for c, column := range columns {
			*column = append(*column, r.counts[c])
		}
	}
	return p
}
