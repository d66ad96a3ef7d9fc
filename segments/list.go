package segments

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// List is a list of users that a segment is built from.
type List struct {
	// R is read to its end: text with one user a line, or CSV whose first line
	// names the columns. Blank lines and, in text, lines that begin with "#" are skipped.
	R io.Reader
	// CSV says that it is CSV, and Column which column has the users; an empty
	// Column stands for the only one.
	CSV    bool
	Column string
	// Progress, if set, is told now and then how many users have been read.
	Progress func(read uint64)
}

// chunk is how many numbers are added to a bitmap at once.
const chunk = 16 << 10

// maxListLine is the longest line of a text list in bytes, and what is read at
// once: far longer than any number or user id.
const maxListLine = 256 << 10

// AddList adds the users of a list to a segment of an added group: their numbers, or
// in groups that are numbered by hashes their ids. It returns how many lines
// it took. A user may be listed more than once.
//
// An error names the line, never its content. When ctx ends, it returns ctx's
// error. The segment then has a part of the list, so the Builder is of no use any more.
func (b *Builder) AddList(ctx context.Context, group, segment string, l List) (read uint64, err error) {
	g, bitmap, err := b.segment(group, segment)
	if err != nil {
		return 0, err
	}
	a := &adding{ctx: ctx, bitmap: bitmap, numbers: g.Numbers, progress: l.Progress, chunk: make([]uint32, 0, chunk)}
	if l.CSV {
		err = a.csv(l.R, l.Column)
	} else {
		err = a.text(l.R)
	}
	if err == nil {
		err = a.flush()
	}
	return a.read, err
}

// adding is one run of AddList.
type adding struct {
	ctx      context.Context
	bitmap   *roaring.Bitmap
	numbers  Numbering
	progress func(uint64)
	chunk    []uint32
	read     uint64
}

// user adds the user of a line.
func (a *adding) user(field []byte) error {
	var n uint32
	if a.numbers == ByHash {
		n, _ = ByHash.Of(string(field), 0, false)
	} else {
		var err error
		if n, err = parseNumber(field); err != nil {
			return err
		}
	}
	if a.chunk = append(a.chunk, n); len(a.chunk) == cap(a.chunk) {
		return a.flush()
	}
	return nil
}

func (a *adding) flush() error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	a.bitmap.AddMany(a.chunk)
	a.read += uint64(len(a.chunk))
	a.chunk = a.chunk[:0]
	if a.progress != nil {
		a.progress(a.read)
	}
	return nil
}

func (a *adding) text(r io.Reader) error {
	in := bufio.NewReaderSize(r, maxListLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("line %d: longer than %d bytes", n, maxListLine)
		}
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			if err := a.user(line); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("reading line %d: %w", n, err)
		}
	}
}

func (a *adding) csv(r io.Reader, column string) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	at := -1
	for {
		record, err := in.Read()
		switch {
		case err == io.EOF && at < 0:
			return errors.New("line 1: missing header of a CSV file")
		case err == io.EOF:
			return nil
		case err != nil:
			return csvError(err)
		}
		if at < 0 {
			if at, err = columnOf(record, column); err != nil {
				return fmt.Errorf("line 1: %w", err)
			}
			continue
		}
		if err := a.user([]byte(record[at])); err != nil {
			line, _ := in.FieldPos(at)
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// columnOf finds the column with the users in the header of a CSV file.
func columnOf(header []string, column string) (int, error) {
	header[0] = string(bytes.TrimPrefix([]byte(header[0]), []byte("\xef\xbb\xbf")))
	switch i := slices.Index(header, column); {
	case i >= 0:
		return i, nil
	case column != "":
		return 0, fmt.Errorf("no column %q", column)
	case len(header) > 1:
		return 0, fmt.Errorf("%d columns: say which one has the users (--column of pushctl)", len(header))
	}
	if _, err := parseNumber(header[0]); err == nil {
		return 0, errors.New("missing header of a CSV file")
	}
	return 0, nil
}

// csvError names the line and the rule of a CSV file, without its content.
func csvError(err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("line %d: %w", parse.Line, parse.Err)
	}
	return fmt.Errorf("reading: %w", err)
}
