package admission

import "iter"

// reservations has the reservations of running requests by account: the first one
// of a list that their fields previous and next link. Adding and removing one
// allocates nothing, and one account's requests are found without a look at the
// others'.
type reservations map[string]*Reservation

func (r reservations) add(res *Reservation) {
	first := r[res.key.AccountID]
	if res.next = first; first != nil {
		first.previous = res
	}
	r[res.key.AccountID] = res
}

func (r reservations) remove(res *Reservation) {
	switch {
	case res.previous != nil:
		res.previous.next = res.next
	case res.next != nil:
		r[res.key.AccountID] = res.next
	default:
		delete(r, res.key.AccountID)
	}
	if res.next != nil {
		res.next.previous = res.previous
	}
	res.previous, res.next = nil, nil
}

// of returns the reservations of an account.
func (r reservations) of(account string) iter.Seq[*Reservation] {
	return func(yield func(*Reservation) bool) {
		for res := r[account]; res != nil; res = res.next {
			if !yield(res) {
				return
			}
		}
	}
}

// all returns all reservations.
func (r reservations) all() iter.Seq[*Reservation] {
	return func(yield func(*Reservation) bool) {
		for account := range r {
			for res := range r.of(account) {
				if !yield(res) {
					return
				}
			}
		}
	}
}
