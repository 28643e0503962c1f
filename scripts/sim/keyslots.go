package sim

import (
	"slices"

	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/wire"
)

// keySlotsProfile has keys with slots of their own.
const keySlotsProfile = "slots of keys"

// addSlots gives most new keys some slots of their own.
func (w *world) addSlots(d *database, k *key, account string) {
	if w.r.IntN(4) == 0 {
		return
	}
	d.mark.Pool++
	k.slots = wire.PoolID(d.mark.Pool)
	p := &allocator.Pool{
		ID:         k.slots,
		Kind:       wire.Slots,
		Account:    account,
		Central:    true,
		Generation: 1,
		Total:      1 + w.r.Int64N(40),
	}
	p.Free = p.Total
	w.oracle.resized(k.slots, p.Total)
	d.pools[k.slots] = p
}

// checkNewPools checks I10 for the pools of a new key.
func (w *world) checkNewPools(k *key) {
	w.checkNewPool(k.limit)
	if k.slots != 0 {
		w.checkNewPool(k.slots)
	}
}

// slotsOf returns the pool of the slots of a key; zero if it has none of its own.
func (d *database) slotsOf(k *key) wire.PoolID {
	if d.pools[k.slots] == nil {
		return 0
	}
	return k.slots
}

// slots returns the pools of which a request needs a slot: that of its account, and that of its key if there is one.
func (r *request) slots() []wire.PoolID {
	if !r.needsSlot {
		return nil
	}
	pools := []wire.PoolID{r.record.SlotsPool}
	if r.record.KeySlotsPool != 0 {
		pools = append(pools, r.record.KeySlotsPool)
	}
	return pools
}

// withoutKeySlots removes all needs of slots of each request but the first, which is that of the account.
func withoutKeySlots(request *wire.LeaseRequest) {
	for i, needs := range request.Needs {
		seen := false
		request.Needs[i] = slices.DeleteFunc(slices.Clone(needs), func(n wire.Need) bool {
			second := n.Kind == wire.Slots && seen
			seen = seen || n.Kind == wire.Slots
			return second
		})
	}
}

func keySlotMutations() []Mutation {
	return []Mutation{
		{"requests are granted without a slot of their key", 40, func(r *Rules) {
			r.Profile = keySlotsProfile
			r.Decide = func(
				d *allocator.Batch, request *wire.LeaseRequest, pending *allocator.PendingRequest, applyPolicy func(*allocator.Batch),
			) (*wire.LeaseResponse, bool) {
				without := *request
				without.Needs = slices.Clone(request.Needs)
				withoutKeySlots(&without)
				return d.Decide(&without, pending, applyPolicy)
			}
		}},
	}
}
