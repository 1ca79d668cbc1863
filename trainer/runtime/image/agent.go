package image

import (
	"archive/zip"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	// mainPackage is the main package of elasticdl.
	mainPackage = modulePath + "/cmd/elasticdl"
	// agentPackage is that of the program that elasticdl installs in the pods of other images.
	agentPackage = modulePath + "/cmd/elasticdl-agent"
	// agentName is the agent's name in the archive.
	agentName = "elasticdl-agent"
)

// AddAgent writes to the file out an executable that consists of a binary and of an agent, as a zip
// archive after it: the system runs the binary, and zip readers find the archive. The same files
// make the same bytes. out appears complete, and replaces an existing file.
func AddAgent(binary, agent, out string) error {
	return replace(out, func(w io.Writer) error {
		size, err := appendFile(w, binary)
		if err != nil {
			return err
		}
		archive := zip.NewWriter(w)
		archive.SetOffset(size)
		archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
			return flate.NewWriter(w, flate.BestCompression)
		})
		file, err := archive.CreateHeader(&zip.FileHeader{Name: agentName, Method: zip.Deflate})
		if err != nil {
			return err
		}
		if _, err := appendFile(file, agent); err != nil {
			return err
		}
		return archive.Close()
	})
}

// Install writes DIRECTORY/elasticdl, which any user may run: the agent in a binary, or the binary
// itself if it has none. The file appears complete, and replaces an existing one.
func Install(binary, dir string) error {
	return replace(filepath.Join(dir, "elasticdl"), func(w io.Writer) error {
		archive, err := zip.OpenReader(binary)
		if errors.Is(err, zip.ErrFormat) { // without an archive
			_, err := appendFile(w, binary)
			return err
		}
		if err != nil {
			return err
		}
		defer archive.Close()
		agent, err := archive.Open(agentName)
		if err != nil {
			return fmt.Errorf("read the archive in %s: %w", binary, err)
		}
		defer agent.Close()
		_, err = io.Copy(w, agent) // checks its sum
		return err
	})
}

// replace writes an executable file under another name, and renames it.
func replace(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".elasticdl-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // has no effect after the rename
	if err = write(f); err == nil {
		err = f.Chmod(0o755)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// appendFile copies a file to w, and returns its size in bytes.
func appendFile(w io.Writer, path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.Copy(w, f)
}
