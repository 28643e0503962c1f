package app

import (
	"context"
	"time"

	"modelgateway/controlplane/internal/fleet"
	"modelgateway/controlplane/internal/postgres/usagestore"
	"modelgateway/controlplane/internal/traffic"
)

// watchFleet adds the jobs that read the sessions of the proxies and write what they report.
func (a *app) watchFleet(fleets fleet.Store, jobs *jobs) {
	jobs.every("traffic_sessions", 5*time.Second, func(ctx context.Context) error { return a.knowSessions(ctx, fleets) })
	stored := usagestore.NewTraffic(a.adminDB)
	jobs.every("traffic_minutes", 5*time.Second, traffic.NewRecorder(a.traffic, stored).Run)
	jobs.every("traffic_partitions", time.Hour, stored.KeepPartitions)
	jobs.every("fleet_metrics", 15*time.Second, fleet.NewMetrics(fleets, a.registry).Update)
}

// knowSessions says which proxies should report.
func (a *app) knowSessions(ctx context.Context, fleets fleet.Store) error {
	f, err := fleets.Fleet(ctx)
	if err != nil {
		return err
	}
	var active []traffic.Session
	for i := range f.Proxies {
		if p := &f.Proxies[i]; p.State == fleet.Active {
			active = append(active, traffic.Session{ID: p.Session, Name: p.Name})
		}
	}
	a.traffic.SetSessions(active)
	return nil
}
