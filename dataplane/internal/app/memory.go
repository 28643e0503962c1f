package app

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"modelgateway/dataplane/internal/bytebudget"
	"modelgateway/dataplane/internal/config"
	"modelgateway/dataplane/internal/httpapi"
	"modelgateway/dataplane/internal/httpapi/room"
	"modelgateway/dataplane/internal/turns"
	"modelgateway/shared/platform/clientaddr"
)

const (
	// budgetPercent is the part of the memory limit that bodies may use. While one is rewritten it needs its memory twice.
	budgetPercent = 40
	// budgetWithoutLimit is the budget for bodies if there is no memory limit, in bytes.
	budgetWithoutLimit = 1 << 30
)

// bodyBudget returns the size of the budget for bodies in bytes. set is the setting, zero if there is none.
func bodyBudget(set int64) int64 {
	if set > 0 {
		return set
	}
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = cgroupLimit(os.DirFS("/"))
	}
	if limit == 0 {
		return budgetWithoutLimit
	}
	return max(limit/100*budgetPercent, bytebudget.MinSize)
}

// accountShare is the part of the room for bodies that one account may use. The only body of an account may be larger.
const accountShare = .25

// newBudget makes the budget for bodies and registers its metrics.
func newBudget(cfg *config.API, reg prometheus.Registerer) *bytebudget.Budget {
	budget := bytebudget.New(bodyBudget(cfg.BodyBudget), accountShare)
	reg.MustRegister(budget)
	return budget
}

// diskShare is the part of the bytes of the spool that answers may have beside it on its disk: one in diskShare. The chart
// leaves a fifth of the volume to other than the spool.
const diskShare = 8

// newRooms makes the room for answers and registers its metric. memory is the budget for bodies.
func newRooms(cfg *config.Config, memory *bytebudget.Budget, reg prometheus.Registerer) *room.Rooms {
	disk := bytebudget.New(cfg.Spool.MaxBytes/diskShare, accountShare)
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_answer_file_bytes",
		Help: "Bytes of answers that are held in files now, because the budget for bodies had no room for them.",
	}, func() float64 { return float64(disk.Used()) }))
	return &room.Rooms{Memory: memory, Disk: disk, Dir: cfg.Spool.Dir}
}

// newTurns makes the turns of large bodies and registers their metric.
func newTurns(reg prometheus.Registerer) *turns.Turns {
	all := turns.New(turns.Processors())
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mgw_body_turns_waiting", Help: "Large request bodies that wait for their turns at the processors now.",
	}, func() float64 { return float64(all.Waiting()) }))
	return all
}

// listenerConfig returns the settings of the public listener.
func listenerConfig(cfg *config.API) httpapi.Config {
	proxies, _ := cfg.Proxies() // validated
	return httpapi.Config{
		Listen:      cfg.Listen,
		TLS:         cfg.TLS.Files(),
		BodyTimeout: cfg.BodyTimeout,
		MinRate:     cfg.MinRate,
		MaxConns:    cfg.MaxConnections,
		Client:      clientaddr.Behind(proxies),
	}
}

// cgroupLimit returns the least memory limit of the process's control groups in bytes, zero if they have none. root is
// the root of the file system.
func cgroupLimit(root fs.FS) int64 {
	const v1 = "sys/fs/cgroup/memory/memory.limit_in_bytes"
	limit := readLimit(root, v1)
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit
	}

	for line := range strings.Lines(string(groups)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for ok {
			if n := readLimit(root, path.Join("sys/fs/cgroup", group, "memory.max")); n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
			if group == "" || group == "." {
				break
			}
			group = path.Dir(group)
		}
	}

	return limit
}

// readLimit reads a limit in bytes, zero if the file has none.
func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" means none
	const none = 1 << 60                                                // version 1 shows no limit as a very large one
	if err != nil || n >= none {
		return 0
	}
	return n
}
