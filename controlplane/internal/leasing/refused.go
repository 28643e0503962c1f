package leasing

import (
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// RefusedPools returns the pools that cannot cover a request of the batch: those for which a new result
// refuses a request with BalanceInsufficient or LimitInsufficient. It returns nil if there is none.
func RefusedPools(requests []*wire.LeaseRequest, results map[allocator.RequestKey]*allocator.Result) map[wire.PoolID]bool {
	var refused map[wire.PoolID]bool
	for _, r := range requests {
		result := results[allocator.RequestKey{Session: r.Session, Account: r.Account}]
		if result == nil || !result.New || result.Number != r.Number {
			continue
		}

		for _, d := range result.Response.Decisions {
			if d.Reason != wire.LimitInsufficient && d.Reason != wire.BalanceInsufficient {
				continue
			}
			if refused == nil {
				refused = map[wire.PoolID]bool{}
			}
			refused[d.Pool] = true
		}
	}

	return refused
}
