package convert

import (
	"strconv"

	"modelgateway/controlplane/internal/httpapi/gen"
	"modelgateway/shared/money"
	"modelgateway/shared/wire"
)

var poolKinds = map[wire.PoolKind]gen.PoolKind{
	wire.Balance: gen.PoolKindBalance,
	wire.Limit:   gen.PoolKindSpendLimit,
	wire.Slots:   gen.PoolKindSlots,
}

// PoolKind returns the name of a kind of pools.
func PoolKind(k wire.PoolKind) gen.PoolKind { return poolKinds[k] }

// PoolAmount returns units of a pool: money, or a count of slots.
func PoolAmount(k wire.PoolKind, n int64) string {
	if k == wire.Slots {
		return strconv.FormatInt(n, 10)
	}
	return money.Nano(n).String()
}
