package fakeroot

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
)

// sharedObject is the smallest ELF shared library that ldconfig indexes and the
// dynamic loader loads: no code and no symbols, only a dynamic section with the
// soname.
func sharedObject(soname string) []byte {
	const (
		headerSize  = 64
		programSize = 56
		programs    = 3
		hashOffset  = headerSize + programs*programSize
		hashSize    = 4 * 4
		// Alignment to 8 bytes for the symbol table.
		symbolOffset = (hashOffset + hashSize + 7) / 8 * 8
		symbolSize   = 24
		stringOffset = symbolOffset + symbolSize
		pageSize     = 0x1000
	)
	strings := append([]byte{0}, soname...)
	strings = append(strings, 0)
	dynamicOffset := (stringOffset + len(strings) + 7) / 8 * 8
	dynamic := []elf.Dyn64{
		{Tag: int64(elf.DT_SONAME), Val: 1},
		{Tag: int64(elf.DT_HASH), Val: hashOffset},
		{Tag: int64(elf.DT_STRTAB), Val: stringOffset},
		{Tag: int64(elf.DT_SYMTAB), Val: symbolOffset},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(len(strings))},
		{Tag: int64(elf.DT_SYMENT), Val: symbolSize},
		{Tag: int64(elf.DT_NULL)},
	}
	size := uint64(dynamicOffset + binary.Size(dynamic))

	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	header := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Ehsize: headerSize, Phentsize: programSize, Phnum: programs, Shentsize: 64,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)

	readWrite := uint32(elf.PF_R | elf.PF_W)
	segments := []elf.Prog64{
		// The loader relocates the dynamic section in place, so it is writable.
		{Type: uint32(elf.PT_LOAD), Flags: readWrite, Filesz: size, Memsz: size, Align: pageSize},
		{Type: uint32(elf.PT_DYNAMIC), Flags: readWrite, Off: uint64(dynamicOffset), Vaddr: uint64(dynamicOffset),
			Paddr: uint64(dynamicOffset), Filesz: uint64(binary.Size(dynamic)), Memsz: uint64(binary.Size(dynamic)), Align: 8},
		{Type: uint32(elf.PT_GNU_STACK), Flags: readWrite, Align: 16},
	}
	// One bucket, one chain, for the one symbol that every table begins with.
	hash := []uint32{1, 1, 0, 0}

	var b bytes.Buffer
	parts := []struct {
		offset int
		value  any
	}{
		{0, header}, {headerSize, segments}, {hashOffset, hash},
		{symbolOffset, elf.Sym64{}}, {stringOffset, strings}, {dynamicOffset, dynamic},
	}
	for _, part := range parts {
		b.Write(make([]byte, part.offset-b.Len()))
		// Writing fixed-size values to a buffer cannot fail.
		_ = binary.Write(&b, binary.LittleEndian, part.value)
	}
	return b.Bytes()
}
