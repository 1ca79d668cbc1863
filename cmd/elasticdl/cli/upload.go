package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/folder"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/train/data/dataset"
)

// uploading is a directory of this machine that the workers of a job on a cluster start in.
type uploading struct {
	folder *folder.Folder
	dir    string // of the archive, as the job's pods see it
	file   string // the archive, in dir
}

// settleUpload completes a command whose --workdir is to be uploaded by what is in it; nil if there
// is nothing to upload. Nothing is uploaded yet.
func settleUpload(c *job.Command) (*uploading, error) {
	if c.Upload == "" {
		return nil, nil
	}
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("--workdir=%s: "+format, append([]any{c.Upload}, args...)...))
	}
	if c.Job.UploadDir() == "" {
		problem("it is uploaded to a claim; give --volume=\"claim_name=CLAIM,mount_path=/data\", " +
			"which can be written to, or have the code in the image, as elasticdl zoo build does")
	}
	code, err := folder.Read(c.Upload)
	if err != nil {
		problem("%w", err)
		return nil, errors.Join(problems...)
	}
	if script := c.Job.Program.Script(); script != "" && !path.IsAbs(script) && !code.Has(script) {
		problem("script %s is not in it, or left out; expected a path in the directory", script)
	}
	sum := sha256.New()
	if err := code.Archive(sum); err != nil {
		problem("%w", err)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	u := &uploading{folder: code}
	u.dir, u.file = c.Job.SetCode(hex.EncodeToString(sum.Sum(nil)))
	return u, nil
}

// copy says how the archive, which is in a directory of this machine, comes to its claim.
func (u *uploading) copy(j *job.Job, from string) kube.Copy {
	claim, to, _ := j.OnClaim(u.dir) // settleUpload has found it there
	return kube.Copy{
		// as the master, it needs elasticdl
		From: from, Claim: claim, To: to, Image: cmp.Or(j.Master.Image, j.Program.AgentImage, j.Image),
		Pull: j.ImagePullPolicy,
		Flag: "--workdir=" + u.folder.Dir, Job: j,
	}
}

// pack writes the archive into a directory. The job has the same one.
func (u *uploading) pack(j *job.Job, into string) error {
	file, err := os.Create(filepath.Join(into, u.file))
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	if err := errors.Join(u.folder.Archive(io.MultiWriter(file, sum)), file.Close()); err != nil {
		return fmt.Errorf("--workdir=%s: %w", u.folder.Dir, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != j.Program.CodeSHA256 {
		return fmt.Errorf("--workdir=%s: it changed while it was read; try again", u.folder.Dir)
	}
	return nil
}

// run uploads the code of a job, unless it is there, and reports it.
func (u *uploading) run(ctx context.Context, client *kube.Client, j *job.Job, out, notes io.Writer) error {
	work, err := os.MkdirTemp("", "elasticdl-upload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := u.pack(j, work); err != nil {
		return err
	}
	show := &steps{out: notes}
	defer show.close()
	what := u.copy(j, work)
	existed, err := client.CopyToClaim(ctx, what, func(p kube.CopyProgress) {
		show.show(dataset.Progress{Step: strings.ReplaceAll(p.Step, work, u.folder.Dir), Bytes: true,
			Done: p.Done, Total: p.Total})
	})
	if err != nil {
		return err
	}
	show.close()
	verb := "uploaded to"
	if existed {
		verb = "there already:"
	}
	_, err = fmt.Fprintf(out, "code %s (%s, %.1f MB) %s claim:%s/%s\n", u.folder.Dir,
		count(int64(u.folder.Files()), "file"), float64(u.folder.Size)/1e6, verb, what.Claim, what.To)
	return err
}
