# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The sources of the provider to come: compiled, and linked into nothing yet.
add_library(mana-next OBJECT
  @SOURCES@
  )
target_include_directories(mana-next PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/next/include")
set_target_properties(mana-next PROPERTIES POSITION_INDEPENDENT_CODE ON)
