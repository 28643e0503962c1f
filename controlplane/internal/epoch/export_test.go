package epoch

import "time"

// ErrWaiting is what Look returns while others are waited for.
var ErrWaiting = errWaiting

// Hasten has a Keeper that has not looked yet wait for nobody.
func (k *Keeper) Hasten() { k.watch = newWatch(k.watch.attendant.ID(), -time.Second) }
