package httpapi_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"modelgateway/shared/apikey"
	"modelgateway/shared/event"
	"modelgateway/shared/lease/allocator"
	"modelgateway/shared/price"
	"modelgateway/shared/wire"
)

// The pool ids of an account are the number of the account plus these offsets.
const (
	balanceOffset wire.PoolID = iota
	limitOffset
	slotsOffset
	poolsPerAccount
)

// controlPlane simulates the control plane: lease decisions, records of keys, balances and records of video jobs.
type controlPlane struct {
	mu        sync.Mutex
	allocator *allocator.Allocator
	last      map[string]wire.LeaseResponse
	records   map[apikey.Hash]wire.KeyRecord
	accounts  map[string]wire.PoolID
	// unknownLoads counts the lookups of keys that do not exist.
	unknownLoads int
	ops          int
	// down leaves all messages without a reply; loadsDown only those that load keys, updatesDown only those that update
	// video jobs.
	down, loadsDown, updatesDown bool
	// onLeaseRequest is called when a lease request has come; it may be nil.
	onLeaseRequest func()
	balance        wire.BalanceResponse
	videos         map[string]event.Video
	// readRevision is the revision at which records are read.
	readRevision int64
	// onVideoGet is called with the account of a lookup, nil for nothing.
	onVideoGet func(account string)
	// onVideoCreate is called when a creation has been recorded, nil for nothing; createReplyLost leaves creations
	// without a reply. refusal refuses them. backups has the backed-up states, backupsDown makes backups fail.
	onVideoCreate                func()
	createReplyLost, backupsDown bool
	refusal                      *event.VideoRefusal
	backups                      []event.Video
	// updated has an element for each update of a video job, backedUp for each backup.
	updated, backedUp chan event.Video
}

var errDown = errors.New("no reply")

func newControlPlane() *controlPlane {
	return &controlPlane{
		allocator: allocator.New(), last: map[string]wire.LeaseResponse{}, records: map[apikey.Hash]wire.KeyRecord{},
		accounts: map[string]wire.PoolID{}, videos: map[string]event.Video{}, updated: make(chan event.Video, 100), backedUp: make(chan event.Video, 100),
		readRevision: 1 << 40,
	}
}

// open creates an account with money and slots, and with a limit for its keys.
func (p *controlPlane) open(account string, balance, limit, slots int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	base := wire.PoolID(len(p.accounts)+1) * poolsPerAccount
	p.accounts[account] = base
	for offset, pool := range map[wire.PoolID]allocator.Pool{
		balanceOffset: {Kind: wire.Balance, Total: balance}, limitOffset: {Kind: wire.Limit, Total: limit}, slotsOffset: {Kind: wire.Slots, Total: slots},
	} {
		pool.ID, pool.Free, pool.Generation, pool.Central = base+offset, pool.Total, 1, true
		p.allocator.Pools[pool.ID] = &pool
	}
}

func (p *controlPlane) issue(hash apikey.Hash, keyID, account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	base := p.accounts[account]
	p.records[hash] = wire.KeyRecord{
		KeyID: keyID, AccountID: account, Active: true, BalancePool: base + balanceOffset, LimitPool: base + limitOffset, SlotsPool: base + slotsOffset,
		MaxConcurrent: p.allocator.Pools[base+slotsOffset].Total,
	}
}

// deactivate changes a record as a revocation or a suspension does, and returns the revision of the change.
func (p *controlPlane) deactivate(hash apikey.Hash) (revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record := p.records[hash]
	record.Active = false
	p.records[hash] = record
	p.readRevision++
	return p.readRevision
}

func (p *controlPlane) set(change func(p *controlPlane)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// held returns the outstanding units of one of an account's pools.
func (p *controlPlane) held(account string, offset wire.PoolID) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allocator.Pools[p.accounts[account]+offset].Outstanding()
}

// spend takes units out of a pool, as settled charges do, until rest units are left.
func (p *controlPlane) spend(account string, offset wire.PoolID, rest int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pool := p.allocator.Pools[p.accounts[account]+offset]
	pool.Settled += pool.Free - rest
	pool.Free = rest
}

func (p *controlPlane) RequestLease(_ context.Context, op *wire.LeaseRequest) (*wire.LeaseResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, errDown
	}
	p.ops++
	if p.onLeaseRequest != nil {
		p.onLeaseRequest()
	}
	if last := p.last[op.Account]; op.Number <= last.Number {
		return &last, nil
	}
	reply, _ := p.allocator.Decide(op, &allocator.PendingRequest{})
	if reply.Status == wire.Done {
		p.last[op.Account] = reply
	}
	return &reply, nil
}

func (p *controlPlane) Return(_ context.Context, r *wire.Return) (*wire.ReturnResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allocator.ApplyReports(r.Session, r.Reports)
	return &wire.ReturnResponse{V: wire.Version, Status: wire.Done}, nil
}

func (p *controlPlane) LoadKey(_ context.Context, q *wire.LoadKeyRequest) (*wire.LoadKeyResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loadsDown {
		return nil, errDown
	}
	loaded := &wire.LoadKeyResponse{V: wire.Version, Status: wire.Done, ReadRevision: p.readRevision}
	if record, ok := p.records[q.KeyHash]; ok {
		loaded.Record = &record
	} else {
		p.unknownLoads++
	}
	return loaded, nil
}

func (p *controlPlane) Balance(context.Context, *wire.BalanceRequest) (*wire.BalanceResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, errDown
	}
	reply := p.balance
	return &reply, nil
}

func (p *controlPlane) CreateVideo(_ context.Context, v *event.Video) (*event.VideoResponse, error) {
	p.mu.Lock()
	refusal, recorded, lost := p.refusal, p.onVideoCreate, p.createReplyLost
	p.mu.Unlock()
	if refusal != nil {
		return &event.VideoResponse{V: event.Version, Status: event.VideoRefused, Refusal: refusal}, nil
	}
	response, err := p.video(v.ID, "", func(*event.Video) (event.Video, string) {
		next := *v
		next.Rev = 1
		return next, event.VideoDone
	})
	if recorded != nil {
		recorded()
	}
	if lost {
		return nil, errDown
	}
	return response, err
}

func (p *controlPlane) BackUpVideo(_ context.Context, v *event.Video) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backupsDown {
		return errDown
	}
	p.backups = append(p.backups, *v)
	p.backedUp <- *v
	return nil
}

func (p *controlPlane) GetVideo(_ context.Context, q *event.VideoGetRequest) (*event.VideoResponse, error) {
	p.mu.Lock()
	wait := p.onVideoGet
	p.mu.Unlock()
	if wait != nil {
		wait(q.AccountID)
	}
	return p.video(q.ID, q.AccountID, func(current *event.Video) (event.Video, string) { return *current, event.VideoDone })
}

func (p *controlPlane) UpdateVideo(_ context.Context, v *event.Video) (*event.VideoResponse, error) {
	p.mu.Lock()
	silent := p.updatesDown
	p.mu.Unlock()
	if silent {
		return nil, errDown
	}
	return p.video(v.ID, "", func(current *event.Video) (event.Video, string) {
		if current.Rev != v.Rev || current.Ended() {
			return *current, event.VideoConflict
		}
		next := *v
		next.Rev++
		p.updated <- next
		return next, event.VideoDone
	})
}

func (p *controlPlane) video(id, account string, change func(current *event.Video) (event.Video, string)) (*event.VideoResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return nil, errDown
	}
	current, there := p.videos[id]
	if account != "" && (!there || current.AccountID != account) {
		return &event.VideoResponse{V: event.Version, Status: event.VideoNotFound}, nil
	}
	next, status := change(&current)
	p.videos[id] = next
	return &event.VideoResponse{V: event.Version, Status: status, Video: &next}, nil
}

// onlyVideo returns the record of the only job.
func (p *controlPlane) onlyVideo(t *testing.T) event.Video {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.videos) != 1 {
		t.Fatalf("got %d video jobs; want 1", len(p.videos))
	}
	for _, v := range p.videos {
		return v
	}
	panic("unreachable")
}

// multiply changes a record as a change of the account's multipliers does.
func (p *controlPlane) multiply(hash apikey.Hash, own price.Multiplier, models map[string]price.Multiplier) {
	p.change(hash, func(r *wire.KeyRecord) { r.PriceMultiplier, r.ModelMultipliers = own, models })
}

// change changes a record.
func (p *controlPlane) change(hash apikey.Hash, change func(r *wire.KeyRecord)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	record := p.records[hash]
	change(&record)
	p.records[hash] = record
}
