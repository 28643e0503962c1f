package devstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
)

// State is what stack.json holds: how to use a running stack. Fields are
// added, never renamed.
type State struct {
	// BaseURL is the first of BaseURLs, the data planes without /v1.
	BaseURL  string   `json:"base_url"`
	BaseURLs []string `json:"base_urls"`
	// AdminURL is the first of AdminURLs, the control planes without /admin/v1; AdminToken has every scope.
	AdminURL   string `json:"admin_url"`
	AdminToken string `json:"admin_token"`
	// AdminURLs are all control planes.
	AdminURLs []string `json:"admin_urls"`
	// APIKey belongs to the demo account, AccountID, and has no limit.
	APIKey    string `json:"api_key"`
	AccountID string `json:"account_id"`
	// OpsURLs are the listeners for probes and metrics, by part.
	OpsURLs        map[string]string `json:"ops_urls"`
	ProviderSimURL string            `json:"providersim_url"`
	// NATSURL and PostgresURL hold the password.
	NATSURL     string `json:"nats_url"`
	PostgresURL string `json:"postgres_url"`
	// PIDs are the running processes by part. NATS runs inside devstack.
	PIDs map[string]int `json:"pids"`
}

// book keeps the files about the running stack true while its processes come
// and go: pids.json from the first process on, for the next run to find what
// is left of this one, and stack.json while the stack is ready.
type book struct {
	layout Layout

	mu    sync.Mutex
	state State
	ready bool
}

func newBook(layout Layout) *book {
	return &book{layout: layout, state: State{PIDs: map[string]int{"devstack": os.Getpid()}}}
}

// running notes the process of a part.
func (b *book) running(name string, pid int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.PIDs[name] = pid
	if err := writeJSON(b.layout.processes(), b.state.PIDs); err != nil {
		return err
	}
	return b.write()
}

// current returns the state as stack.json shows it.
func (b *book) current() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.state
	state.PIDs = maps.Clone(state.PIDs)
	return state
}

// publish writes stack.json from now on.
func (b *book) publish(state State) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	state.PIDs = b.state.PIDs
	b.state, b.ready = state, true
	return b.write()
}

// withdraw removes stack.json: the stack is stopping.
func (b *book) withdraw() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = false
	return removeFile(b.layout.state())
}

// close removes both files: nothing runs any more.
func (b *book) close() error {
	return errors.Join(b.withdraw(), removeFile(b.layout.processes()))
}

// write needs the lock.
func (b *book) write() error {
	if !b.ready {
		return nil
	}
	return writeJSON(b.layout.state(), b.state)
}

func writeJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return writeFile(name, append(text, '\n'))
}

// recordedProcesses returns the processes of the last run in the directory, if
// it did not end in order.
func (l Layout) recordedProcesses() (map[string]int, error) {
	pids := map[string]int{}
	text, err := os.ReadFile(l.processes())
	if errors.Is(err, fs.ErrNotExist) {
		return pids, nil
	}
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	if err := json.Unmarshal(text, &pids); err != nil {
		return nil, fmt.Errorf("%s is damaged (remove it): %w", l.processes(), err)
	}
	return pids, nil
}
