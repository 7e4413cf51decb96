package tools

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// Paths maps the name of a binary to where it is.
type Paths map[string]string

// Logf prints one line of progress.
type Logf func(format string, args ...any)

// Find locates the tools named (none: all): KUBEBUILDER_ASSETS first, then PATH, then our cache, which is filled by building what is
// missing. A binary found elsewhere is taken only if its version will do.
func Find(ctx context.Context, root string, log Logf, names ...string) (Paths, error) {
	paths := Paths{}
	for _, spec := range Specs() {
		if len(names) > 0 && !slices.Contains(names, spec.Name) {
			continue
		}
		pinned, err := spec.pinned(root)
		if err != nil {
			return nil, err
		}
		path, err := locate(ctx, root, spec, pinned, log)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spec.Name, err)
		}
		paths[spec.Name] = path
	}
	return paths, nil
}

// locate takes a fitting binary that the user brought, else the cached one, else builds it, saying first what it passes over.
func locate(ctx context.Context, root string, spec Spec, pinned Version, log Logf) (string, error) {
	var passed []string
	for _, path := range candidates(spec.Name) {
		found, err := ask(ctx, path, spec.VersionArgs)
		switch {
		case err != nil:
			passed = append(passed, fmt.Sprintf("%s is passed over: %v", path, err))
		case !spec.Accepts(found, pinned):
			passed = append(passed, fmt.Sprintf("%s is passed over: it is %s, and %s is wanted", path, found, pinned))
		default:
			log("using %s (%s)", path, found)
			return path, nil
		}
	}
	path, err := cachePath(ctx, root, spec, pinned)
	if err != nil || isExecutable(path) {
		return path, err
	}
	for _, line := range passed {
		log("%s", line)
	}
	return path, ensure(ctx, root, spec, pinned, path, log)
}

func candidates(name string) []string {
	var paths []string
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		path := filepath.Join(assets, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			paths = append(paths, path)
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		paths = append(paths, path)
	}
	return paths
}

func ask(ctx context.Context, path string, args []string) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return Version{}, fmt.Errorf("asking its version: %w", err)
	}
	return ParseVersion(string(out))
}
