package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"modelgateway/controlplane/adminclient"
)

// The rotations follow docs/operations/secrets.md.

// rotateFleetKey exchanges the fleet key.
func (s *scenario) rotateFleetKey(ctx context.Context) error {
	old, next := s.keys["fleet-key"], randomKey()
	const withPrevious = "secrets.previousFleetKeys.enabled=true"
	s.keys["previous-fleet-keys"] = next
	if err := secret(ctx, s.keys); err != nil {
		return err
	}
	if err := s.helm(ctx, s.next, withPrevious); err != nil {
		return err
	}

	s.keys["fleet-key"], s.keys["previous-fleet-keys"] = next, old
	if err := secret(ctx, s.keys); err != nil {
		return err
	}
	if err := restart(ctx, "deployment/"+controlPlane); err != nil {
		return err
	}
	if err := restart(ctx, "statefulset/"+dataPlane); err != nil {
		return err
	}

	return s.helm(ctx, s.next)
}

// rotateBootstrapToken exchanges the bootstrap token.
func (s *scenario) rotateBootstrapToken(ctx context.Context) error {
	old, next := s.keys["bootstrap-token"], rand.Text()
	for _, text := range []string{next + "\n" + old, next} {
		s.keys["bootstrap-token"] = text
		if err := secret(ctx, s.keys); err != nil {
			return err
		}
		if err := restart(ctx, "deployment/"+controlPlane); err != nil {
			return err
		}
	}

	former := s.admin
	if err := s.signIn(ctx); err != nil {
		return err
	}
	if _, err := s.admin.GetBalance(ctx, s.account); err != nil {
		return fmt.Errorf("the new token: %w", err)
	}

	// The former replicas end some seconds after the new ones are ready.
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(time.Second) {
		_, err := former.GetBalance(ctx, s.account)
		if problem, ok := errors.AsType[*adminclient.Error](err); ok && problem.StatusCode == http.StatusUnauthorized {
			return nil
		}
	}

	return errors.New("the old token is still accepted")
}

// rotatePepper exchanges the pepper. The key of the load stays valid, because it is hashed again.
func (s *scenario) rotatePepper(ctx context.Context) error {
	old, next := s.keys["pepper"], rand.Text()
	s.keys["previous-peppers"] = next
	if err := s.withSecret(ctx, "secrets.previousPeppers.enabled=true"); err != nil {
		return err
	}

	s.keys["pepper"], s.keys["previous-peppers"] = next, old
	if err := secret(ctx, s.keys); err != nil {
		return err
	}

	for _, workload := range []string{"deployment/" + controlPlane, "statefulset/" + dataPlane} {
		if err := restart(ctx, workload); err != nil {
			return err
		}
	}

	if _, err := s.admin.RotatePepper(ctx, nil); err != nil {
		return fmt.Errorf("rotate the pepper: %w", err)
	}

	err := s.await(ctx, "the keys to be hashed again", func() (bool, error) {
		state, err := s.admin.GetPepper(ctx)
		return err == nil && state.Value.Waiting == 0 && state.Value.HashOnly == 0, err
	})
	if err != nil {
		return err
	}

	delete(s.keys, "previous-peppers")
	return s.withSecret(ctx)
}

// rotateMasterKey exchanges the master key.
func (s *scenario) rotateMasterKey(ctx context.Context) error {
	old, next := s.keys["master-key"], randomKey()
	s.keys["previous-master-keys"] = "m2:" + next
	if err := s.withSecret(ctx, "secrets.previousMasterKeys.enabled=true"); err != nil {
		return err
	}

	s.keys["master-key"], s.keys["previous-master-keys"] = "m2:"+next, "m1:"+old
	if err := secret(ctx, s.keys); err != nil {
		return err
	}
	if err := restart(ctx, "deployment/"+controlPlane); err != nil {
		return err
	}
	if _, err := s.admin.RotateMasterKey(ctx, nil); err != nil {
		return fmt.Errorf("rotate the master key: %w", err)
	}

	err := s.await(ctx, "the old master key to be removable", func() (bool, error) {
		state, err := s.admin.GetMasterKey(ctx)
		if err != nil {
			return false, err
		}
		for _, k := range state.Value.Keys {
			if k.ID == "m1" && k.Removable {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}

	delete(s.keys, "previous-master-keys")
	return s.withSecret(ctx)
}

// rotateNATSPasswords moves both planes to second users, and removes the first ones.
func (s *scenario) rotateNATSPasswords(ctx context.Context) error {
	if err := s.servers.addNextUsers(); err != nil {
		return err
	}
	for _, plane := range []string{"controlplane", "dataplane"} {
		s.keys[plane+"-nats-password"] = s.servers.natsPasswords[plane+"-next"]
		s.always = append(s.always, plane+".nats.user="+plane+"-next")
	}
	if err := s.withSecret(ctx); err != nil {
		return err
	}
	return s.servers.removeFirstUsers()
}

// withSecret writes the Secret and upgrades, which restarts the planes whose configuration changes. Other pods read it when they
// start the next time.
func (s *scenario) withSecret(ctx context.Context, set ...string) error {
	if err := secret(ctx, maps.Clone(s.keys)); err != nil {
		return err
	}
	return s.helm(ctx, s.next, set...)
}

// await waits for a condition. A control plane that restarts cannot answer, so errors count only at the end.
func (s *scenario) await(ctx context.Context, what string, done func() (bool, error)) error {
	var last error
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(time.Second) {
		ok, err := done()
		if ok {
			return nil
		}
		last = err
	}
	return errors.Join(fmt.Errorf("waited for %s in vain", what), last, ctx.Err())
}
