package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	namespace    = "gateway"
	releaseName  = "gateway"
	dataPlane    = "gateway-modelgateway-dataplane"
	controlPlane = "gateway-modelgateway-controlplane"
)

// command runs a program with standard input and returns its output.
func command(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.Bytes(), problems.Bytes())
	}
	return out.String(), nil
}

// kubectl runs kubectl in the namespace.
func kubectl(ctx context.Context, args ...string) (string, error) {
	return command(ctx, "", "kubectl", append([]string{"--namespace", namespace}, args...)...)
}

// apply creates or changes an object.
func apply(ctx context.Context, object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode an object: %w", err)
	}
	_, err = command(ctx, string(text), "kubectl", "apply", "--namespace", namespace, "-f", "-")
	return err
}

// secret creates or changes the keys of the Secret of the chart.
func secret(ctx context.Context, keys map[string]string) error {
	data := map[string]string{}
	for key, text := range keys {
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return apply(
		ctx,
		map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "modelgateway"}, "data": data},
	)
}

// clusterIP returns the address of a Service.
func clusterIP(ctx context.Context, name string) (string, error) {
	return kubectl(ctx, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}")
}

// prepare creates the namespace, in which only unprivileged pods may run, and a volume for each possible replica.
func prepare(ctx context.Context, dir string, volumes int) error {
	object := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": namespace, "labels": map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := apply(ctx, object); err != nil {
		return err
	}

	const podUser = 65532
	for i := range volumes {
		folder := filepath.Join(dir, fmt.Sprintf("volume-%d", i))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("create a volume: %w", err)
		}
		if err := os.Chown(folder, podUser, podUser); err != nil {
			return fmt.Errorf("create a volume: %w", err)
		}
		err := apply(
			ctx,
			map[string]any{
				"apiVersion": "v1",
				"kind":       "PersistentVolume",
				"metadata":   map[string]any{"name": filepath.Base(folder)},
				"spec": map[string]any{
					"capacity": map[string]string{
						"storage": "1Gi",
					},
					"accessModes": []string{"ReadWriteOnce"},
					"hostPath":    map[string]string{"path": folder},
				},
			},
		)
		if err != nil {
			return err
		}
	}

	return nil
}

// evict evicts a pod as the maintenance of a node does, and waits until it has ended.
func evict(ctx context.Context, pod string) error {
	eviction, err := json.Marshal(map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]string{"name": pod, "namespace": namespace},
	})
	if err != nil {
		return fmt.Errorf("encode the eviction: %w", err)
	}
	if _, err := command(
		ctx,
		string(eviction),
		"kubectl",
		"create",
		"--raw",
		"/api/v1/namespaces/"+namespace+"/pods/"+pod+"/eviction",
		"-f",
		"-",
	); err != nil {
		return err
	}
	_, err = kubectl(ctx, "wait", "--for=delete", "pod/"+pod, "--timeout=5m")
	return err
}

// ready waits until all replicas of both planes are ready and of the newest revision.
func ready(ctx context.Context) error {
	for _, workload := range []string{"statefulset/" + dataPlane, "deployment/" + controlPlane} {
		if _, err := kubectl(ctx, "rollout", "status", workload, "--timeout=10m"); err != nil {
			return err
		}
	}
	return nil
}

// restart replaces the pods of a workload, which read their secrets when they start, and waits until the former ones have ended:
// one that still answers would rotate to its own key.
func restart(ctx context.Context, workload string) error {
	if _, err := kubectl(ctx, "rollout", "restart", workload); err != nil {
		return err
	}
	if err := ready(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		ending, err := kubectl(ctx, "get", "pods", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}")
		if err != nil || ending == "" {
			return err
		}
		time.Sleep(time.Second)
	}
	return ctx.Err()
}

// keepLogs links the logs of all pods into a folder until ctx ends, because the kubelet removes those of deleted pods.
func keepLogs(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the folder of the logs: %w", err)
	}

	go func() {
		for ctx.Err() == nil {
			files, _ := filepath.Glob("/var/log/pods/" + namespace + "_*/*/*.log") // the pattern is valid
			for _, file := range files {
				name := strings.ReplaceAll(strings.TrimPrefix(file, "/var/log/pods/"), "/", "_")
				_ = os.Link(file, filepath.Join(dir, name)) // usually it exists
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()

	return nil
}
