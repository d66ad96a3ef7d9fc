package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pushfleet/pushfleet/forms"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
)

// deviceLine is a device as it stands in a line of a file; its fields are also the
// columns of a CSV file.
type deviceLine = forms.Device

// The rules of files; packages forms and users have those of devices. None of these errors
// quotes the line, which may contain a token.
var (
	errNotCSV      = errors.New("not CSV: quotes must enclose a whole field and end on the same line")
	errNotJSON     = errors.New("not one JSON object")
	errNotUTF8     = errors.New("not UTF-8")
	errJSONTwice   = errors.New("a field that is there twice, or not in small letters")
	errJSONType    = errors.New("a field is not a string")
	errJSONField   = fmt.Errorf("a field other than %s", strings.Join(forms.DeviceFields, ", "))
	errTimeMissing = errors.New("invalid registered_at: missing (--registered-at sets one for all lines)")
)

// tokenWords describe each platform's tokens.
func tokenWords() string {
	var words []string
	for p := range push.Platforms {
		words = append(words, p.String()+": "+p.TokenGrammar())
	}
	return strings.Join(words, "; ")
}

// environmentWords list the environments of each platform.
func environmentWords() string {
	var words []string
	for p := range push.Platforms {
		if all := p.Environments(); len(all) > 0 {
			words = append(words, p.String()+": "+all[0]+" (default)"+strings.Join(append([]string{""}, all[1:]...), " or "))
		}
	}
	return strings.Join(words, "; ") + "; other platforms have none"
}

// registration checks a device against every rule. Lines without a time get at.
func registration(d *deviceLine, at time.Time) (users.Registration, error) {
	if _, known := push.ParsePlatform(d.Platform); known && d.RegisteredAt == "" && at.IsZero() {
		return users.Registration{}, errTimeMissing
	}
	return d.Registration(at)
}

// deviceParser reads the device of one line.
type deviceParser func(text []byte, d *deviceLine) error

// parseJSON is the deviceParser of JSON lines.
func parseJSON(text []byte, d *deviceLine) error {
	if !utf8.Valid(text) { // encoding/json would make one character of all that is none
		return errNotUTF8
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(d)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return errNotJSON
	case errors.As(err, &wrongType):
		return errJSONType
	case err != nil && strings.HasPrefix(err.Error(), "json: unknown field"): // the package has no type for it
		return errJSONField
	case err != nil:
		return errNotJSON
	}
	if _, err := dec.Token(); err != io.EOF {
		return errNotJSON
	}
	if fault := forms.CheckNames(text, forms.DeviceFields); fault != "" {
		return errJSONTwice
	}
	return nil
}

// csvLine splits one line into its fields.
func csvLine(text []byte) ([]string, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	fields, err := r.Read()
	if err != nil {
		return nil, errNotCSV
	}
	return fields, nil
}

// parseCSV returns the deviceParser of a CSV file with this header.
func parseCSV(header []byte) (deviceParser, error) {
	columns, err := csvLine(header)
	if err != nil {
		return nil, err
	}
	place := make(map[string]int)
	for i, c := range columns {
		c = strings.ToLower(strings.TrimSpace(c))
		if !slices.Contains(forms.DeviceFields, c) {
			return nil, fmt.Errorf("column %d of the header is not one of %s", i+1, strings.Join(forms.DeviceFields, ", "))
		}
		if _, twice := place[c]; twice {
			return nil, fmt.Errorf("the header has the column %s twice", c)
		}
		place[c] = i
	}
	for _, c := range forms.DeviceFields[:4] {
		if _, ok := place[c]; !ok {
			return nil, fmt.Errorf("the header has no column %s", c)
		}
	}
	wrongCount := fmt.Errorf("not the %d fields of the header", len(columns))
	return func(text []byte, d *deviceLine) error {
		fields, err := csvLine(text)
		if err != nil {
			return err
		}
		if len(fields) != len(columns) {
			return wrongCount
		}
		field := func(name string) string {
			if i, ok := place[name]; ok {
				return strings.TrimSpace(fields[i])
			}
			return ""
		}
		*d = deviceLine{UserID: field("user_id"), Platform: field("platform"), Token: field("token"), App: field("app"),
			Environment: field("environment"), Locale: field("locale"), RegisteredAt: field("registered_at"), AppVersion: field("app_version")}
		return nil
	}, nil
}

// The formats of a file of devices.
const (
	csvFile  = "csv"
	jsonFile = "jsonl"
)

// fileFormat is the format that was asked for, or else that of the file's
// extension.
func fileFormat(asked, path string) (string, error) {
	switch asked {
	case csvFile, jsonFile:
		return asked, nil
	case "":
	default:
		return "", usagef("--format: want %s or %s", csvFile, jsonFile)
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".csv":
		return csvFile, nil
	case ".jsonl", ".ndjson", ".json":
		return jsonFile, nil
	}
	return "", usagef("%s: unknown extension; use --format %s or --format %s", path, csvFile, jsonFile)
}
