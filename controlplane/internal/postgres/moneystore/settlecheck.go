package moneystore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"modelgateway/controlplane/internal/postgres"
	"modelgateway/controlplane/internal/postgres/sqlcgen"
	"modelgateway/controlplane/internal/settle"
	"modelgateway/shared/price"
)

var _ settle.Facts = (*Settlement)(nil)

func (s *Settlement) PriceVersions(ctx context.Context, versions []int64) (map[int64]settle.PriceVersion, error) {
	rows, err := s.db.Queries().PriceVersions(ctx, versions)
	if err != nil {
		return nil, postgres.Translate("read price versions", err)
	}
	found := make(map[int64]settle.PriceVersion, len(rows))
	for _, r := range rows {
		sheet := &price.Sheet{}
		if err := json.Unmarshal(r.Sheet, sheet); err != nil {
			return nil, fmt.Errorf("postgres: decode price version %d: %w", r.Version, err)
		}
		sheet.Version = r.Version
		found[r.Version] = settle.PriceVersion{Model: r.ModelID, Sheet: sheet}
	}
	return found, nil
}

func (s *Settlement) ProviderPrices(
	ctx context.Context,
	routes []string,
	from, to time.Time,
) (map[string][]settle.ProviderPrice, error) {
	rows, err := s.db.Queries().ProviderPrices(ctx, sqlcgen.ProviderPricesParams{Routes: routes, FromTime: from, ToTime: to})
	if err != nil {
		return nil, postgres.Translate("read provider prices", err)
	}
	found := map[string][]settle.ProviderPrice{}
	for _, r := range rows {
		p := settle.ProviderPrice{Version: r.Version, Since: r.EffectiveFrom}
		if r.Sheet != nil {
			p.Sheet = &price.Sheet{Version: r.Version}
			if err := json.Unmarshal(r.Sheet, p.Sheet); err != nil {
				return nil, fmt.Errorf("postgres: decode provider price %d: %w", r.Version, err)
			}
		}
		found[r.RouteID] = append(found[r.RouteID], p)
	}
	return found, nil
}

func (s *Settlement) WithoutLease(ctx context.Context, holders []settle.Holder) ([]settle.Holder, error) {
	var arg sqlcgen.WithoutLeaseParams
	for _, h := range holders {
		arg.SessionIds, arg.AccountIds = append(arg.SessionIds, h.Session), append(arg.AccountIds, h.Account)
	}
	rows, err := s.db.Queries().WithoutLease(ctx, arg)
	if err != nil {
		return nil, postgres.Translate("find leases", err)
	}
	var without []settle.Holder
	for _, r := range rows {
		without = append(without, settle.Holder{Session: r.SessionID, Account: r.AccountID})
	}
	return without, nil
}

func (s *Settlement) Owners(ctx context.Context, publishers []settle.Publisher) (map[settle.Publisher]bool, error) {
	var arg sqlcgen.SessionOwnersParams
	for _, p := range publishers {
		arg.SessionIds, arg.Proxies = append(arg.SessionIds, p.Session), append(arg.Proxies, p.Proxy)
	}
	rows, err := s.db.Queries().SessionOwners(ctx, arg)
	if err != nil {
		return nil, postgres.Translate("find the proxies of sessions", err)
	}
	owners := make(map[settle.Publisher]bool, len(rows))
	for _, r := range rows {
		owners[settle.Publisher{Proxy: r.Proxy, Session: r.SessionID}] = r.Owner
	}
	return owners, nil
}

// dropQuarantined removes from absent the events that Postgres refused in an
// earlier delivery of their message, and those that an operator has dismissed. They
// are quarantined again, which has no effect. Otherwise every delivery would look
// for the bad events of a message from the start, and could take longer than the
// message may stay unacknowledged. Other reasons for quarantine may be gone.
func (t *settleTx) dropQuarantined(absent []int) ([]int, error) {
	var arg sqlcgen.QuarantinedBeforeParams
	for _, i := range absent {
		arg.SessionIds, arg.Seqs = append(arg.SessionIds, t.items[i].Session), append(arg.Seqs, t.items[i].Seq)
	}

	if len(absent) == 0 {
		return nil, nil
	}

	rows, err := t.q.QuarantinedBefore(t.ctx, arg)
	if err != nil {
		return nil, fmt.Errorf("look up quarantine: %w", err)
	}

	type number struct{ session, seq int64 }
	before := make(map[number]sqlcgen.QuarantinedBeforeRow, len(rows))
	for _, r := range rows {
		before[number{r.SessionID, r.Seq}] = r
	}

	var left []int
	for _, i := range absent {
		item := &t.items[i]
		r, found := before[number{item.Session, item.Seq}]
		stays := r.Resolution == string(settle.Dismissed) || settle.IsUnstorable(r.Reason)
		if !found || !stays || item.Reviewed || !bytes.Equal(r.Payload, item.Payload) {
			left = append(left, i)
			continue
		}
		t.quarantineReasons[i] = r.Reason
		t.Charges[i].Invalid = true
	}

	return left, nil
}
