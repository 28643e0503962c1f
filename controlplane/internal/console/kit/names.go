package kit

import (
	"errors"
	"maps"
	"strings"
	"sync"

	"modelgateway/controlplane/adminclient"
)

const (
	// maxNames bounds how many names are looked up for a page; others are shown by their ids.
	maxNames = 50
	// lookups is how many names are looked up at once.
	lookups = 4
)

// Names looks up the names of accounts, projects, keys and limits by their ids. Those that do not exist, and those beyond a bound,
// have none.
func Names(r *Request, ids []string) (map[string]string, error) {
	found := map[string]string{}
	for _, id := range ids {
		if len(found) < maxNames {
			found[id] = ""
		}
	}

	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	turns := make(chan struct{}, lookups)
	for id := range maps.Clone(found) {
		all.Go(func() {
			turns <- struct{}{}
			name, err := nameOf(r, id)
			<-turns
			mu.Lock()
			defer mu.Unlock()
			found[id] = name
			failed = errors.Join(failed, err)
		})
	}

	all.Wait()
	return found, failed
}

func nameOf(r *Request, id string) (string, error) {
	var name string
	var err error
	switch {
	case strings.HasPrefix(id, "key_"):
		var answer *adminclient.Response[adminclient.Key]
		if answer, err = r.API.GetKey(r.Context(), id); err == nil {
			name = answer.Value.Name
		}
	case strings.HasPrefix(id, "prj_"):
		var answer *adminclient.Response[adminclient.Project]
		if answer, err = r.API.GetProject(r.Context(), id); err == nil {
			name = answer.Value.Name
		}
	case strings.HasPrefix(id, "lim_"):
		var answer *adminclient.Response[adminclient.SpendLimit]
		if answer, err = r.API.GetLimit(r.Context(), id); err == nil && answer.Value.Name != nil {
			name = *answer.Value.Name
		}
	default:
		var answer *adminclient.Response[adminclient.Account]
		if answer, err = r.API.GetAccount(r.Context(), id); err == nil {
			name = answer.Value.Name
		}
	}

	if adminclient.Code(err) == "not_found" || adminclient.Code(err) == "invalid_input" {
		err = nil
	}

	return name, err
}
