package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Login has the credentials of a registry's user.
type Login struct{ User, Password string }

// Push uploads an image to the registry in its name, with the credentials of login or, if that is
// nil, those of Docker's configuration (~/.docker/config.json and its helpers). Registries on this
// machine and insecure ones may speak plain HTTP. It returns the name with the digest of the image:
// REGISTRY/NAME:TAG@sha256:….
func Push(ctx context.Context, i *Image, login *Login, insecure bool, progress func(Progress)) (string, error) {
	tag, err := parseTag(i.Name, insecure)
	if err != nil {
		return "", fmt.Errorf("push %s: %w", i.Name, err)
	}
	updates := make(chan v1.Update, 16)
	var showing sync.WaitGroup
	showing.Go(func() {
		for u := range updates {
			if u.Error == nil {
				progress(Progress{Step: "push " + i.Name, Bytes: true, Done: u.Complete, Total: u.Total})
			}
		}
	})
	with := append(transfer(ctx, login), remote.WithProgress(updates))
	if i.index != nil {
		err = remote.WriteIndex(tag, i.index, with...)
	} else {
		err = remote.Write(tag, i.plain, with...)
	}
	showing.Wait()
	if err != nil {
		return "", fmt.Errorf("push %s: %w", i.Name, explain(err, tag.Registry, login))
	}
	return i.Name + "@" + i.Digest, nil
}

func transfer(ctx context.Context, login *Login) []remote.Option {
	as := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if login != nil {
		as = remote.WithAuth(&authn.Basic{Username: login.User, Password: login.Password})
	}
	return []remote.Option{remote.WithContext(ctx), as, remote.WithUserAgent("elasticdl")}
}

// pullBase returns the base image for one platform. Its layers are pulled when they are needed.
func pullBase(ctx context.Context, base string, insecure bool, platform string) (v1.Image, error) {
	ref, err := name.ParseReference(base, options(insecure)...)
	if err != nil {
		return nil, fmt.Errorf("--base_image=%s: %w", base, err)
	}
	fail := func(err error) error {
		return fmt.Errorf("pull --base_image=%s: %w", base, explain(err, ref.Context().Registry, nil))
	}
	want, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	found, err := remote.Get(ref, append(transfer(ctx, nil), remote.WithPlatform(*want))...)
	if err != nil {
		return nil, fail(err)
	}
	if found.MediaType.IsIndex() {
		if there, err := platforms(found); err != nil {
			return nil, fail(err)
		} else if !covers(there, *want) {
			return nil, fail(fmt.Errorf("is for %s, not for %s", join(there), platform))
		}
	}
	image, err := found.Image()
	if err != nil {
		return nil, fail(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fail(err)
	}
	if is := config.Platform(); !found.MediaType.IsIndex() && !covers([]v1.Platform{*is}, *want) {
		return nil, fail(fmt.Errorf("is for %s, not for %s", is, platform))
	}
	return image, nil
}

// platforms returns the platforms of an index, without attestations, whose platform is unknown.
func platforms(index *remote.Descriptor) ([]v1.Platform, error) {
	all, err := index.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	var found []v1.Platform
	for _, m := range manifest.Manifests {
		if m.Platform != nil && m.Platform.OS != "unknown" {
			found = append(found, *m.Platform)
		}
	}
	return found, nil
}

func covers(there []v1.Platform, want v1.Platform) bool {
	for _, p := range there {
		if p.Satisfies(want) {
			return true
		}
	}
	return false
}

func join(platforms []v1.Platform) string {
	var names []string
	for _, p := range platforms {
		names = append(names, p.String())
	}
	if len(names) == 0 {
		return "no platform"
	}
	return strings.Join(names, ", ")
}

// explain adds to a registry's refusal what the user can do about it.
func explain(err error, registry name.Registry, login *Login) error {
	if refused, ok := errors.AsType[*transport.Error](err); ok {
		switch refused.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			if login != nil {
				return fmt.Errorf("%s does not let --username=%s do this with the password that was "+
					"given: %w", registry.Name(), login.User, err)
			}
			return fmt.Errorf("%s wants other credentials than those in ~/.docker/config.json "+
				"(docker login %[1]s, gcloud auth configure-docker %[1]s or the like write them): %w",
				registry.Name(), err)
		case http.StatusNotFound:
			return fmt.Errorf("%s: not found, or no permission to read it: %w", registry.Name(), err)
		}
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return fmt.Errorf("%s speaks plain HTTP: give --insecure if that is meant: %w", registry.Name(), err)
	}
	return err
}
