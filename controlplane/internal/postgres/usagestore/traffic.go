package usagestore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"modelgateway/controlplane/internal/account"
	"modelgateway/controlplane/internal/key"
	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/traffic"
	"modelgateway/shared/ident"
	"modelgateway/shared/pulse"
)

// Traffic keeps minutes and hours.
type Traffic struct{ db *postgres.DB }

// NewTraffic returns a store that uses db.
func NewTraffic(db *postgres.DB) *Traffic { return &Traffic{db} }

var _ traffic.Store = (*Traffic)(nil)

func (s *Traffic) Written(ctx context.Context, from, to time.Time) ([]traffic.Written, error) {
	rows, err := s.db.Queries().WrittenTraffic(ctx, sqlcgen.WrittenTrafficParams{FromTime: from, ToTime: to})
	written := make([]traffic.Written, len(rows))
	for i, r := range rows {
		written[i] = traffic.Written{
			At:      r.Minute,
			Minutes: 1,
			Heard:   int(r.Heard),
			Silent:  int(r.Silent),
		}
	}
	return written, postgres.Translate("read written minutes", err)
}

// count is a row of a minute with the names of its columns.
type count struct {
	pulse.Series
	// These repeat members of Series that JSON would leave out if they are empty.
	Endpoint string  `json:"endpoint"`
	Model    string  `json:"model"`
	Provider string  `json:"provider"`
	Route    string  `json:"route"`
	Status   int     `json:"status"`
	Code     string  `json:"code"`
	Outcome  string  `json:"outcome"`
	N        int64   `json:"n"`
	SumMS    int64   `json:"sum_ms"`
	Buckets  []int64 `json:"buckets"`
}

// refusal is a row of refusals with the names of its columns.
type refusal struct {
	AccountID *string      `json:"account_id"`
	KeyID     *string      `json:"key_id"`
	Code      string       `json:"code"`
	Status    int          `json:"status"`
	Other     bool         `json:"other"`
	N         int64        `json:"n"`
	FirstAt   time.Time    `json:"first_at"`
	LastAt    time.Time    `json:"last_at"`
	RequestID string       `json:"request_id"`
	Model     string       `json:"model"`
	Short     *pulse.Short `json:"short"`
	Reason    string       `json:"reason"`
}

func (s *Traffic) Write(ctx context.Context, m *traffic.Minute) error {
	counts := make([]count, len(m.Rows))
	for i, r := range m.Rows {
		counts[i] = count{r.Series, r.Endpoint, r.Model, r.Provider, r.Route, r.Status, r.Code, r.Outcome, r.N, r.SumMS, r.Buckets}
	}

	countsJSON, err := json.Marshal(counts)
	if err != nil {
		return fmt.Errorf("encode the rows of a minute: %w", err)
	}

	refusalsJSON, err := json.Marshal(refusalRows(m.Refusals))
	if err != nil {
		return fmt.Errorf("encode the refusals of a minute: %w", err)
	}

	hour := m.At.Truncate(time.Hour)
	return s.db.InTx(ctx, func(tx pgx.Tx) error {
		q := sqlcgen.New(tx)
		if locked, err := q.TryLockTraffic(ctx); err != nil || !locked {
			return postgres.Translate("lock the minutes", err)
		}
		inserted, err := q.InsertTrafficCoverage(
			ctx,
			sqlcgen.InsertTrafficCoverageParams{Minute: m.At, Heard: int32(m.Heard), Silent: int32(m.Silent)},
		)
		if err != nil || inserted == 0 {
			return postgres.Translate("write the coverage of a minute", err)
		}
		if err := q.InsertTrafficMinute(ctx, sqlcgen.InsertTrafficMinuteParams{Minute: m.At, Counts: countsJSON}); err != nil {
			return postgres.Translate("write a minute", err)
		}
		if err := q.AddTrafficHour(ctx, sqlcgen.AddTrafficHourParams{Hour: hour, Counts: countsJSON}); err != nil {
			return postgres.Translate("add a minute to its hour", err)
		}
		return postgres.Translate("write refusals", q.AddRefusals(ctx, sqlcgen.AddRefusalsParams{Hour: hour, Refusals: refusalsJSON}))
	})
}

// refusalRows returns the rows of refusals. An id that is none, which no proxy of the product sends, counts as absent;
// then several rows can have the same columns and are added up.
func refusalRows(refusals []traffic.Refusal) []refusal {
	rows, places := []refusal{}, map[traffic.RefusalKey]int{}
	for i := range refusals {
		r := &refusals[i]
		row := refusal{
			AccountID: parse(ident.Account, r.Account),
			KeyID:     parse(ident.Key, r.Key),
			Code:      r.Code,
			Status:    r.Status,
			Other:     r.Other,
			N:         r.N,
			FirstAt:   r.First,
			LastAt:    r.Last,
			RequestID: r.RequestID,
			Model:     r.Model,
			Short:     r.Short,
			Reason:    r.Reason,
		}

		same := r.RefusalKey
		if row.AccountID == nil {
			same.Account = ""
		}
		if row.KeyID == nil {
			same.Key = ""
		}

		if at, there := places[same]; there {
			rows[at].N += row.N
			continue
		}

		places[same] = len(rows)
		rows = append(rows, row)
	}

	return rows
}

// parse returns the UUID of an id in hexadecimal, nil for an empty or malformed id.
func parse(kind ident.Kind, text string) *string {
	id, err := kind.Parse(text)
	if err != nil {
		return nil
	}
	digits := hex.EncodeToString(id[:])
	return &digits
}

func (s *Traffic) Read(ctx context.Context, q *traffic.Query) ([]traffic.Stored, error) {
	params := sqlcgen.TrafficByHourParams{
		Step:     q.Step.Seconds(),
		ByLabel:  q.By,
		Measure:  string(q.Reported),
		FromTime: q.From,
		ToTime:   q.To,
		Outcome:  q.Outcome,
	}
	if q.Step < time.Hour {
		rows, err := s.db.Queries().TrafficByMinute(ctx, sqlcgen.TrafficByMinuteParams(params))
		found := make([]traffic.Stored, len(rows))
		for i, r := range rows {
			found[i] = stored(sqlcgen.TrafficByHourRow(r))
		}
		return found, postgres.Translate("read traffic by minute", err)
	}

	rows, err := s.db.Queries().TrafficByHour(ctx, params)
	found := make([]traffic.Stored, len(rows))
	for i, r := range rows {
		found[i] = stored(r)
	}

	return found, postgres.Translate("read traffic by hour", err)
}

func stored(r sqlcgen.TrafficByHourRow) traffic.Stored {
	return traffic.Stored{At: r.At, Label: r.Label, Sum: traffic.Sum{N: r.N, SumMS: r.SumMs, Buckets: r.Buckets}}
}

func (s *Traffic) Coverage(ctx context.Context, q *traffic.Query) ([]traffic.Written, error) {
	rows, err := s.db.Queries().TrafficCoverage(ctx, sqlcgen.TrafficCoverageParams{Step: q.Step.Seconds(), FromTime: q.From, ToTime: q.To})
	found := make([]traffic.Written, len(rows))
	for i, r := range rows {
		found[i] = traffic.Written{
			At:      r.At,
			Minutes: int(r.Minutes),
			Heard:   int(r.Heard),
			Silent:  int(r.Silent),
		}
	}
	return found, postgres.Translate("read the coverage of the traffic", err)
}

func (s *Traffic) Records(ctx context.Context, q *traffic.Query) ([]traffic.Stored, error) {
	rows, err := s.db.Queries().UsageByDay(ctx, sqlcgen.UsageByDayParams{
		ByModel: q.By != "", FromDay: pgtype.Date{Time: q.From, Valid: true}, ToDay: pgtype.Date{Time: q.To, Valid: true},
	})
	found := make([]traffic.Stored, len(rows))
	for i, r := range rows {
		found[i] = traffic.Stored{At: r.UsedOn.Time, Label: r.Label, Sum: traffic.Sum{N: r.Tokens}}
		if q.Measure == traffic.Cost {
			found[i].N = r.Cost
		}
	}
	return found, postgres.Translate("read usage by day", err)
}

func (s *Traffic) Refusals(ctx context.Context, q *traffic.RefusalQuery) ([]traffic.HourlyRefusal, error) {
	rows, err := s.db.Queries().ListRefusals(ctx, sqlcgen.ListRefusalsParams{
		Before:    q.Before,
		AccountID: (*ident.UUID)(q.Account),
		KeyID:     (*ident.UUID)(q.Key),
		ProjectID: projectOrNil(q.Project),
		Code:      q.Code,
		RequestID: q.RequestID,
		FromTime:  q.From,
		ToTime:    q.To,
		MaxRows:   int32(q.Limit),
	})
	if err != nil {
		return nil, postgres.Translate("list refusals", err)
	}

	found := make([]traffic.HourlyRefusal, len(rows))
	for i := range rows {
		r := &rows[i]
		f := &found[i]
		f.ID, f.Hour, f.N, f.First, f.Last, f.RequestID, f.Model = r.ID, r.Hour, r.N, r.FirstAt, r.LastAt, r.RequestID, r.Model
		f.Code, f.Status, f.Other, f.Reason = r.Code, int(r.Status), r.Other, r.Reason
		if r.AccountID != nil {
			f.Account = account.ID(*r.AccountID).String()
		}
		if r.KeyID != nil {
			f.Key = key.ID(*r.KeyID).String()
		}
		if r.Short != nil {
			if err := json.Unmarshal(r.Short, &f.Short); err != nil {
				return nil, fmt.Errorf("read what was short for %s: %w", r.RequestID, err)
			}
		}
	}

	return found, nil
}

// KeepPartitions creates the partitions of the coming days, drops those of old ones, and removes old rows.
func (s *Traffic) KeepPartitions(ctx context.Context) error {
	if err := s.db.Queries().KeepTrafficPartitions(ctx); err != nil {
		return postgres.Translate("keep partitions of the traffic", err)
	}
	return postgres.Translate("remove old traffic", s.db.Queries().RemoveOldTraffic(ctx))
}
