package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth.dev/hack/controlplane/internal/kube"
	"berth.dev/hack/controlplane/internal/proc"
	"berth.dev/hack/controlplane/internal/tools"
)

// Options of Up.
type Options struct {
	Root   string // the folder of this module, where the tools' go.mod files are
	Dir    string
	Before []string // manifests to apply before the controllers start
	Stages fs.FS
	Log    tools.Logf
}

// Up brings a control plane up in a folder and returns when it is ready. What it started is ended again if it fails.
func Up(ctx context.Context, options Options) (*State, error) {
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o755); err != nil {
		return nil, err
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if old, err := Load(dir); err == nil && old.anyAlive() {
		return nil, fmt.Errorf("a control plane runs in %s already: `plane down --dir %s` ends it", dir, dir)
	}
	begin := time.Now()
	if path := os.Getenv("KUBECONFIG"); path != "" && os.Getenv("BERTH_USE_CLUSTER") == "1" {
		return adopt(ctx, dir, path, options)
	}
	paths, err := tools.Find(ctx, options.Root, options.Log)
	if err != nil {
		return nil, err
	}
	options.Log("tools ready in %s", since(begin))
	// A free port may be taken between choosing and listening: then everything starts again with others.
	for try := 1; ; try++ {
		state, err := start(ctx, dir, paths, options)
		if err == nil {
			options.Log("control plane ready in %s: %s", since(begin), state.Kubeconfig)
			return state, nil
		}
		if try == 3 || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
		options.Log("a port was taken meanwhile, trying others")
	}
}

// adopt uses the cluster of KUBECONFIG and starts nothing; of the tools only kubectl is wanted.
func adopt(ctx context.Context, dir, path string, options Options) (*State, error) {
	paths, err := tools.Find(ctx, options.Root, options.Log, tools.Kubectl)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("KUBECONFIG (one file is wanted): %w", err)
	}
	state := &State{Dir: dir, External: true, Kubeconfig: filepath.Join(dir, "admin.kubeconfig"), Tools: paths}
	if err := os.WriteFile(state.Kubeconfig, text, 0o600); err != nil {
		return nil, err
	}
	client, err := state.Admin()
	if err != nil {
		return nil, err
	}
	state.Server = client.Server()
	if err := state.save(); err != nil {
		return nil, err
	}
	for _, manifest := range options.Before {
		if err := state.apply(ctx, manifest); err != nil {
			return nil, err
		}
	}
	options.Log("using the cluster at %s", state.Server)
	return state, nil
}

func start(ctx context.Context, dir string, paths tools.Paths, options Options) (_ *State, err error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	state := &State{
		Dir:        dir,
		Kubeconfig: filepath.Join(dir, "admin.kubeconfig"),
		Server:     fmt.Sprintf("https://127.0.0.1:%d", ports[0]),
		Etcd:       fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
		Tools:      paths,
		Procs:      map[string]*proc.Process{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, state.stopAll())
		}
	}()
	if err := errors.Join(state.clean(), state.freshLogs(), state.writePKI()); err != nil {
		return nil, err
	}
	begin := time.Now()
	for _, spec := range []proc.Spec{state.etcdSpec(), state.apiServerSpec(ports[0])} {
		if err := state.launch(spec); err != nil {
			return nil, err
		}
	}
	if err := state.Ready(ctx, 2*time.Minute); err != nil {
		return nil, err
	}
	options.Log("etcd and kube-apiserver ready in %s", since(begin))
	begin = time.Now()
	for _, path := range options.Before {
		if err := state.apply(ctx, path); err != nil {
			return nil, err
		}
		options.Log("applied %s", path)
	}
	configs, err := state.writeStages(options.Stages)
	if err != nil {
		return nil, err
	}
	for _, spec := range []proc.Spec{state.managerSpec(), state.kwokSpec(configs)} {
		if err := state.launch(spec); err != nil {
			return nil, err
		}
	}
	if err := state.waitControllers(ctx); err != nil {
		return nil, err
	}
	options.Log("controllers ready in %s", since(begin))
	return state, nil
}

// launch starts a process and records it at once, so that it can be ended whatever happens next.
func (s *State) launch(spec proc.Spec) error {
	process, err := proc.Start(spec)
	if err != nil {
		return err
	}
	s.Procs[spec.Name] = process
	return s.save()
}

// Ready waits until the API server is ready, and fails at once if it or etcd has ended.
func (s *State) Ready(ctx context.Context, within time.Duration) error {
	client, err := s.Admin()
	if err != nil {
		return err
	}
	return s.poll(ctx, "kube-apiserver to be ready", within, []string{tools.Etcd, tools.APIServer}, func(ctx context.Context) error {
		return client.Do(ctx, http.MethodGet, "/readyz", kube.JSON, nil, nil)
	})
}

// waitControllers waits for what the controllers make: the service account that every pod needs, and the CA beside it.
func (s *State) waitControllers(ctx context.Context) error {
	client, err := s.Admin()
	if err != nil {
		return err
	}
	return s.poll(ctx, "the controllers to furnish namespace default", 2*time.Minute, order, func(ctx context.Context) error {
		return errors.Join(
			client.Get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil),
			client.Get(ctx, "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", nil))
	})
}

// poll repeats a check until it passes; a process it needs that has ended is reported with the end of its log.
func (s *State) poll(ctx context.Context, what string, within time.Duration, needs []string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		for _, name := range needs {
			if process := s.Procs[name]; process != nil && !process.Alive() {
				return fmt.Errorf("%s ended while waiting for %s:\n%s", name, what, s.logTail(name))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", within, what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *State) logTail(name string) string {
	text, err := os.ReadFile(filepath.Join(s.Dir, "logs", name+".log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

func since(begin time.Time) time.Duration { return time.Since(begin).Round(10 * time.Millisecond) }
