package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// loseVolume deletes a replica with its claim, as docs/operations/upgrade.md says. The replica drains, and the next one starts with
// an empty volume.
func (s *scenario) loseVolume(ctx context.Context) error {
	pod := dataPlane + "-1"
	if _, err := kubectl(ctx, "delete", "pvc", "spool-"+pod, "--wait=false"); err != nil {
		return err
	}
	if _, err := kubectl(ctx, "delete", "pod", pod, "--timeout=3m"); err != nil {
		return err
	}
	// The claim ends with the pod. A pod that was created before that waits for a claim that nobody creates.
	if _, err := kubectl(ctx, "wait", "--for=delete", "pvc/spool-"+pod, "--timeout=30s"); err != nil {
		if _, err := kubectl(ctx, "delete", "pod", pod, "--timeout=3m"); err != nil {
			return err
		}
	}
	return ready(ctx)
}

// resizeVolumes recreates the StatefulSet with another size, which the chart refuses before. The volumes of this cluster cannot grow.
func (s *scenario) resizeVolumes(ctx context.Context) error {
	const size = "dataplane.spool.size=768Mi"
	if err := s.helm(ctx, s.next, size); err == nil || !strings.Contains(err.Error(), "dataplane.spool.size") {
		return fmt.Errorf("the chart did not refuse another size: %w", err)
	}
	if _, err := kubectl(ctx, "delete", "statefulset", dataPlane, "--cascade=orphan"); err != nil {
		return err
	}
	s.always = append(s.always, size)
	return s.helm(ctx, s.next)
}

// stopControlPlanes leaves the proxies alone for ten seconds. They serve from what they hold.
func (s *scenario) stopControlPlanes(ctx context.Context) error {
	if err := s.scaleControlPlanes(ctx, 0); err != nil {
		return err
	}
	const away = 10 * time.Second
	time.Sleep(away)
	if err := s.scaleControlPlanes(ctx, 2); err != nil {
		return err
	}
	return s.awaitAdmission(ctx)
}

// scaleControlPlanes waits until the number of control planes is reached.
func (s *scenario) scaleControlPlanes(ctx context.Context, n int) error {
	if _, err := kubectl(ctx, "scale", "deployment/"+controlPlane, fmt.Sprintf("--replicas=%d", n)); err != nil {
		return err
	}
	if n > 0 {
		return ready(ctx)
	}
	_, err := kubectl(ctx, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=controlplane", "--timeout=2m")
	return err
}

// stopNATS keeps NATS away for five seconds.
func (s *scenario) stopNATS(ctx context.Context) error {
	s.servers.stopNATS()
	const away = 5 * time.Second
	time.Sleep(away)
	if err := s.servers.runNATS(); err != nil {
		return err
	}
	return s.awaitAdmission(ctx)
}

func (s *scenario) restartPostgres(ctx context.Context) error {
	if err := s.servers.restartPostgres(ctx); err != nil {
		return err
	}
	return s.awaitAdmission(ctx)
}

// restoreBackup restores a backup that lacks the requests of some seconds, which are billed again from the stream of usage.
func (s *scenario) restoreBackup(ctx context.Context) error {
	file := filepath.Join(s.dir, "backup")
	if err := s.servers.dump(ctx, file); err != nil {
		return err
	}

	at := s.load.count()
	const later = 5 * time.Second
	time.Sleep(later)
	lost := s.load.count().since(at)
	if err := s.scaleControlPlanes(ctx, 0); err != nil {
		return err
	}
	if err := s.servers.restore(ctx, file); err != nil {
		return err
	}

	began := time.Now()
	if err := s.scaleControlPlanes(ctx, 2); err != nil {
		return err
	}
	if err := s.awaitAdmission(ctx); err != nil {
		return err
	}

	s.say("at least %d requests are not in the backup; requests are admitted %.1f s after the start of the control planes",
		lost.requests+lost.streams, time.Since(began).Seconds())

	return nil
}

// awaitAdmission waits until the load is served: for three seconds no request has failed, and some were answered.
func (s *scenario) awaitAdmission(ctx context.Context) error {
	const quiet = 3 * time.Second
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline) && ctx.Err() == nil; {
		before := s.load.count()
		time.Sleep(quiet)
		if f := s.load.count().since(before); f.failures(false) == 0 && f.requests > 0 {
			return nil
		}
	}
	return errors.Join(errors.New("requests are still refused"), ctx.Err())
}

// helmTest runs the tests of the chart. The cluster has no DNS, so the pod gets the addresses of the Services.
func (s *scenario) helmTest(ctx context.Context) error {
	const host = "controlplane.extraPodSpec.hostAliases[%d].%s"
	for i, name := range []string{controlPlane, dataPlane} {
		ip, err := clusterIP(ctx, name)
		if err != nil {
			return err
		}
		s.always = append(s.always, fmt.Sprintf(host, i, "ip")+"="+ip, fmt.Sprintf(host, i, "hostnames[0]")+"="+name+"."+namespace+".svc")
	}

	if err := s.helm(ctx, s.next); err != nil {
		return err
	}

	out, err := command(ctx, "", "helm", "test", releaseName, "--namespace", namespace, "--logs", "--timeout", "3m")
	if err != nil {
		return err
	}

	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "warning") || strings.HasPrefix(line, "failure") || strings.Contains(line, "services answers") {
			s.say("%s", strings.TrimSpace(line))
		}
	}

	return nil
}
