// Package modellist makes and caches the list of models that GET /v1/models
// answers with, for each account.
package modellist

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// maxBytes bounds the cached lists of all accounts together, in bytes.
const maxBytes = 32 << 20

// List is an encoded list of models. It is immutable.
type List struct {
	// Body is the JSON of the list.
	Body []byte
	// ETag is the value of the header ETag: a strong one, of Body.
	ETag [1]string
}

// Matches reports whether the values of a header If-None-Match name the list.
func (l *List) Matches(values []string) bool {
	for _, value := range values {
		for tag := range strings.SplitSeq(value, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == l.ETag[0] {
				return true
			}
		}
	}
	return false
}

// Lists caches the lists of the newest catalog snapshot. It is safe for concurrent
// use; the zero value is empty.
type Lists struct {
	mu       sync.RWMutex
	snapshot *catalog.Snapshot
	// cached has the lists by account and, of keys that may not use all models, a hash of theirs. That of the empty account is
	// also the list of every account without grants and multipliers.
	cached map[string]*cachedList
	bytes  int
}

// cachedList is a list with everything that it was made of, except for the
// snapshot.
type cachedList struct {
	List
	// until is when the next price takes effect, zero if none is scheduled.
	until           time.Time
	multiplier      price.Multiplier
	modelMultiplier map[string]price.Multiplier
}

func (c *cachedList) isFor(key *wire.KeyRecord, now time.Time) bool {
	return (c.until.IsZero() || now.Before(c.until)) && c.multiplier == key.PriceMultiplier &&
		maps.Equal(c.modelMultiplier, key.ModelMultipliers)
}

// Of returns the list for a key's account; an empty record gets the list without a
// key.
func (l *Lists) Of(snapshot *catalog.Snapshot, key *wire.KeyRecord, now time.Time) (*List, error) {
	account := key.AccountID
	if !snapshot.HasGrant(account) && key.PriceMultiplier == 0 && len(key.ModelMultipliers) == 0 {
		account = ""
	}
	if len(key.Rules.Models) > 0 {
		sum := sha256.Sum256([]byte(strings.Join(key.Rules.Models, "\n")))
		account += "\n" + string(sum[:])
	}

	l.mu.RLock()
	known := l.cached[account]
	usable := l.snapshot == snapshot && known != nil && known.isFor(key, now)
	l.mu.RUnlock()
	if usable {
		return &known.List, nil
	}

	made, err := encode(snapshot, key, now)
	if err != nil {
		return nil, err
	}

	l.put(snapshot, account, made)
	return &made.List, nil
}

// put caches a list. Lists of another snapshot are dropped, and any others if all
// together are too large.
func (l *Lists) put(snapshot *catalog.Snapshot, account string, made *cachedList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.snapshot != snapshot {
		l.snapshot, l.cached, l.bytes = snapshot, map[string]*cachedList{}, 0
	}
	l.drop(account)
	for other := range l.cached {
		if l.bytes+len(made.Body) <= maxBytes {
			break
		}
		l.drop(other)
	}
	l.cached[account] = made
	l.bytes += len(made.Body)
}

func (l *Lists) drop(account string) {
	if c := l.cached[account]; c != nil {
		l.bytes -= len(c.Body)
		delete(l.cached, account)
	}
}

// encode makes the list of an account at a time.
func encode(snapshot *catalog.Snapshot, key *wire.KeyRecord, now time.Time) (*cachedList, error) {
	models := list{Object: "list", Data: []entry{}}
	made := &cachedList{multiplier: key.PriceMultiplier, modelMultiplier: key.ModelMultipliers}
	for _, m := range snapshot.Visible(key.AccountID) {
		if !key.Rules.AllowsModel(m.ID) {
			continue
		}
		if next := m.NextPriceAfter(now); !next.IsZero() && (made.until.IsZero() || next.Before(made.until)) {
			made.until = next
		}
		if sheet := m.PriceAt(now); sheet != nil && len(m.Formats()) > 0 {
			models.Data = append(models.Data, newEntry(m, sheet.WithMultiplier(key.Multiplier(m.ID)), snapshot.Settings.Currency))
		}
	}

	if n := len(models.Data); n > 0 {
		models.FirstID, models.LastID = &models.Data[0].ID, &models.Data[n-1].ID
	}

	body, err := json.Marshal(models)
	if err != nil {
		return nil, fmt.Errorf("modellist: encode: %w", err)
	}

	sum := sha256.Sum256(body)
	made.List = List{Body: body, ETag: [1]string{`"` + hex.EncodeToString(sum[:12]) + `"`}}
	return made, nil
}
