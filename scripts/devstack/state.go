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

// State is the content of stack.json: the addresses and credentials of a running stack.
// Programs outside the repository read it, so members are added and never renamed.
type State struct {
	// BaseURL is the first of BaseURLs, the URLs of the data planes without /v1.
	BaseURL  string   `json:"base_url"`
	BaseURLs []string `json:"base_urls"`
	// AdminURL is the first of AdminURLs, the URLs of the control planes without
	// /admin/v1. AdminToken has every scope.
	AdminURL   string   `json:"admin_url"`
	AdminToken string   `json:"admin_token"`
	AdminURLs  []string `json:"admin_urls"`
	// APIKey is a key of the demo account without a limit; AccountID is the account.
	APIKey    string `json:"api_key"`
	AccountID string `json:"account_id"`
	// OpsURLs are the URLs of the ops listeners, by part.
	OpsURLs        map[string]string `json:"ops_urls"`
	ProviderSimURL string            `json:"providersim_url"`
	// NATSURL and PostgresURL contain the password.
	NATSURL     string `json:"nats_url"`
	PostgresURL string `json:"postgres_url"`
	// PIDs are the ids of the running processes, by part. NATS runs inside devstack.
	PIDs map[string]int `json:"pids"`
}

// stateFiles writes the files about the running stack: pids.json from the first process
// on, which lets the next run find the processes of a killed one, and stack.json while the
// stack is ready.
type stateFiles struct {
	layout Layout

	mu    sync.Mutex
	state State
	ready bool
}

func newStateFiles(layout Layout) *stateFiles {
	return &stateFiles{layout: layout, state: State{PIDs: map[string]int{"devstack": os.Getpid()}}}
}

// setProcess records the process of a part.
func (f *stateFiles) setProcess(name string, pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.PIDs[name] = pid
	if err := writeJSON(f.layout.processes(), f.state.PIDs); err != nil {
		return err
	}
	return f.write()
}

// current returns the content of stack.json.
func (f *stateFiles) current() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.state
	state.PIDs = maps.Clone(state.PIDs)
	return state
}

// publish writes stack.json and keeps it up to date until withdraw.
func (f *stateFiles) publish(state State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	state.PIDs = f.state.PIDs
	f.state, f.ready = state, true
	return f.write()
}

// withdraw removes stack.json before the stack stops.
func (f *stateFiles) withdraw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = false
	return removeFile(f.layout.state())
}

// remove removes both files after the last process has ended.
func (f *stateFiles) remove() error {
	return errors.Join(f.withdraw(), removeFile(f.layout.processes()))
}

// write updates stack.json if the stack is ready. The caller holds the lock.
func (f *stateFiles) write() error {
	if !f.ready {
		return nil
	}
	return writeJSON(f.layout.state(), f.state)
}

func writeJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return writeFile(name, append(text, '\n'))
}

// recordedProcesses returns the processes of the last run in the directory, none if it
// stopped gracefully.
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
		return nil, fmt.Errorf("%s is invalid; remove it: %w", l.processes(), err)
	}
	return pids, nil
}
