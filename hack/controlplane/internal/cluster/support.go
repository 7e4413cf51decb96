package cluster

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"berth.dev/hack/controlplane/internal/tools"
)

// freePorts picks ports below the range that outgoing connections use, so that the kernel does not give them away meanwhile.
func freePorts(count int) ([]int, error) {
	const low, high = 20000, 32000
	var ports []int
	for range 1000 {
		port := low + rand.IntN(high-low)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer listener.Close() // held until all are chosen, so that they differ
		if ports = append(ports, port); len(ports) == count {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 between %d and %d", count, low, high)
}

// apply runs `kubectl apply` as admin on a file, a folder or a kustomization, and waits until the kinds it brings are served.
func (s *State) apply(ctx context.Context, path string) error {
	args := []string{"apply", "--server-side", "--recursive", "-f", path}
	if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
		args = []string{"apply", "--server-side", "-k", path}
	}
	if err := s.kubectl(ctx, args...); err != nil {
		return err
	}
	return s.kubectl(ctx, "wait", "--for=condition=Established", "customresourcedefinitions", "--all", "--timeout=30s")
}

func (s *State) kubectl(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, s.Tools[tools.Kubectl], append([]string{"--kubeconfig", s.Kubeconfig}, args...)...)
	if out, err := command.CombinedOutput(); err != nil && !strings.Contains(string(out), "no matching resources found") {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// kwokOptions: the defaults play about 20 transitions a second.
const kwokOptions = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  podPlayStageParallelism: 32
  nodePlayStageParallelism: 16
  podsOnNodeSyncParallelism: 4
`

// writeStages lays KWOK's configuration out and returns its files.
func (s *State) writeStages(stages fs.FS) ([]string, error) {
	dir := filepath.Join(s.Dir, "kwok")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	paths := []string{filepath.Join(dir, "options.yaml")}
	if err := os.WriteFile(paths[0], []byte(kwokOptions), 0o644); err != nil {
		return nil, err
	}
	names, err := fs.Glob(stages, "*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(stages, name)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
