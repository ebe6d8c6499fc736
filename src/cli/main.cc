#include "cli/commands.h"

int main(int argc, char** argv) { return tandem::RunCommandLine(argc, argv); }
